package device

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// driver is a Source that takes its time and counts.
type driver struct {
	mu      sync.Mutex
	calls   int
	running int
	most    int
	takes   func(call int) // how long it takes, by waiting
}

func (d *driver) Probe() Report {
	d.mu.Lock()
	d.calls++
	call := d.calls
	d.running++
	d.most = max(d.most, d.running)
	d.mu.Unlock()
	if d.takes != nil {
		d.takes(call)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running--
	return Report{State: Found, GPUs: []GPU{{Index: 0, State: OK, Memory: &Memory{Total: 100, Used: uint64(call)}}}}
}

func used(t *testing.T, m *Monitor) uint64 {
	t.Helper()
	r := m.Report(t.Context())
	if r.State != Found {
		t.Fatalf("%+v", r)
	}
	return r.GPUs[0].Memory.Used
}

func TestMonitorAsksOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &driver{}
		m := NewMonitor(d, 5*time.Second, time.Second)
		for range 10 {
			if got := used(t, m); got != 1 {
				t.Errorf("reading %d within the age, want the first", got)
			}
		}
		time.Sleep(5 * time.Second)
		if got := used(t, m); got != 2 {
			t.Errorf("reading %d after the age, want the second", got)
		}
	})
}

func TestMonitorAsksOnceForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &driver{takes: func(int) { time.Sleep(time.Second / 2) }}
		m := NewMonitor(d, 5*time.Second, time.Second)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if got := used(t, m); got != 1 {
					t.Errorf("reading %d, want that of the one call", got)
				}
			})
		}
		all.Wait()
	})
}

// A driver that hangs costs each who asks nothing but the rest of the first one's patience,
// one goroutine in all, and no reading: the old one would be taken for a new.
func TestMonitorHungDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		d := &driver{takes: func(call int) {
			if call == 2 {
				<-back
			}
		}}
		m := NewMonitor(d, 5*time.Second, time.Second)
		used(t, m)
		time.Sleep(5 * time.Second)
		for i, want := range []time.Duration{time.Second, 0, 0} {
			begun := time.Now()
			r := m.Report(t.Context())
			if took := time.Since(begun); r.State != Hung || len(r.GPUs) > 0 || r.Reason == "" || took != want {
				t.Errorf("report %d after %v (want %v): %+v", i, took, want, r)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		closing := NewMonitor(d, 0, time.Second) // one that is stopped while its call hangs
		closing.mu.Lock()
		closing.probe = m.probe
		closing.mu.Unlock()
		if err := closing.Close(ctx); !errors.Is(err, ErrHung) {
			t.Errorf("close: %v", err)
		}
		close(back)
		synctest.Wait()
		if got := used(t, m); got != 2 { // the late reading is a reading
			t.Errorf("reading %d when the driver is back", got)
		}
		if d.most != 1 {
			t.Errorf("%d calls at one time", d.most)
		}
	})
}

func TestMonitorCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &driver{takes: func(int) { time.Sleep(time.Minute) }}
		m := NewMonitor(d, time.Second, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := m.Report(ctx); r.State != Hung {
			t.Errorf("%+v", r)
		}
		if err := m.Close(t.Context()); err != nil { // waits for the call
			t.Error(err)
		}
		if got := used(t, m); got != 1 { // what is known is still told
			t.Errorf("reading %d", got)
		}
		time.Sleep(time.Minute)
		if r := m.Report(t.Context()); d.calls != 1 || r.State != Found {
			t.Errorf("%d calls after Close, %+v", d.calls, r)
		}
		never := NewMonitor(d, time.Second, time.Second)
		if err := never.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if r := never.Report(t.Context()); r.State == Found || d.calls != 1 {
			t.Errorf("closed before anything was asked: %+v", r)
		}
	})
}
