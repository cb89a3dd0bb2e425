package device

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Source is what a Monitor asks; a Prober is one.
type Source interface{ Probe() Report }

// Monitor stands between many who ask for readings and a driver that may be slow or hang.
// It is safe for concurrent use.
//
//   - At most one probe runs at a time, in a goroutine of its own; all who ask meanwhile
//     wait for that one. It ends when the driver's call returns: a call cannot be cancelled.
//   - A reading younger than the age is given again without asking.
//   - Nobody waits longer than the patience, counted from the probe's begin. From then on,
//     and until the driver's call returns, the answer is a Report in the state Hung,
//     without any reading, given at once. The one goroutine and the thread it occupies stay
//     behind; no second call joins it.
//   - After Close no probe begins.
type Monitor struct {
	source   Source
	age      time.Duration
	patience time.Duration

	mu     sync.Mutex
	last   Report // the newest reading; its Sampled is zero before the first
	probe  *probe // under way; nil: none
	closed bool
}

// probe is one call of the source.
type probe struct {
	begun time.Time
	done  chan struct{} // closed when its report is the Monitor's last
}

// NewMonitor makes a Monitor; nothing is asked before somebody does.
func NewMonitor(source Source, age, patience time.Duration) *Monitor {
	return &Monitor{source: source, age: age, patience: patience}
}

// Report returns readings that are at most the Monitor's age old, or says that the driver
// does not answer.
func (m *Monitor) Report(ctx context.Context) Report {
	m.mu.Lock()
	fresh := !m.last.Sampled.IsZero() && time.Since(m.last.Sampled) < m.age
	if m.probe == nil && (fresh || m.closed) {
		defer m.mu.Unlock()
		if m.last.Sampled.IsZero() {
			return Report{State: Failed, Reason: "the process is stopping.", GPUs: []GPU{}}
		}
		return m.last
	}
	if m.probe == nil {
		m.probe = &probe{begun: time.Now(), done: make(chan struct{})}
		go m.run(m.probe)
	}
	p := m.probe
	m.mu.Unlock()

	timer := time.NewTimer(m.patience - time.Since(p.begun))
	defer timer.Stop()
	select {
	case <-p.done:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.last
	case <-timer.C:
	case <-ctx.Done():
	}
	return Report{State: Hung, GPUs: []GPU{}, Reason: fmt.Sprintf(
		"the NVIDIA driver has not answered for %v; its call cannot be cancelled, and nothing more is asked until it returns.",
		time.Since(p.begun).Round(time.Millisecond))}
}

// run ends with the source's call.
func (m *Monitor) run(p *probe) {
	report := m.source.Probe()
	report.Sampled = time.Now() // a reading that took long is not old
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.probe = report, nil
	close(p.done)
}

// Close keeps new probes from beginning and waits for the one under way, or until ctx ends:
// then its goroutine stays behind, and the error, which wraps ErrHung, says so. It ends
// with the process.
func (m *Monitor) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	p := m.probe
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: a call begun %v ago has not returned", ErrHung, time.Since(p.begun).Round(time.Millisecond))
	}
}
