package engine

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// memory is a record of how much of it the process has had.
type memory struct {
	t        *testing.T
	resident []int64 // bytes, some times a second
	live     []int64 // bytes of the Go heap that were in use at idle moments
}

// newMemory begins a record, after what is garbage by now.
func newMemory(t *testing.T) *memory {
	debug.FreeOSMemory()
	return &memory{t: t}
}

// sampleUntil records what is resident until then. One goroutine at a time may do so.
func (m *memory) sampleUntil(until time.Time) {
	for ; time.Now().Before(until); <-time.After(250 * time.Millisecond) {
		text, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			return // there is none on this system
		}
		pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
		if err != nil {
			m.t.Error(err)
		}
		m.resident = append(m.resident, pages*int64(os.Getpagesize()))
	}
}

// sampleLive records what is in use, which takes a garbage collection.
func (m *memory) sampleLive() {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.live = append(m.live, int64(stats.HeapAlloc))
}

// mustStayFlat compares the last tenth of the record with the third tenth; of ten minutes,
// that is the last minute with the third one. Resident memory may be 3 % more, or 1 MiB in
// a small process, by so much the Go runtime itself varies. A shorter run is still warming
// up in its third tenth, and may gain up to 10 %.
func (m *memory) mustStayFlat(long time.Duration) {
	m.t.Helper()
	m.mustBeFlat("in use", m.live, 0.05)
	m.mustBeFlat("resident", m.resident, 0.10-0.07*min(long.Minutes()/10, 1))
}

func (m *memory) mustBeFlat(name string, samples []int64, allowed float64) {
	m.t.Helper()
	tenth := len(samples) / 10
	if tenth == 0 {
		m.t.Logf("%s: %d samples are not enough to compare", name, len(samples))
		return
	}
	// Medians: a collection that comes late is no growth.
	var medians [10]int64
	var text []string
	for i := range medians {
		medians[i] = slices.Sorted(slices.Values(samples[i*tenth : (i+1)*tenth]))[tenth/2]
		text = append(text, fmt.Sprintf("%.2f", float64(medians[i])/(1<<20)))
	}
	third, last := medians[2], medians[9]
	growth := float64(last)/float64(third) - 1
	m.t.Logf("%s, in MiB, by tenths of the time: %s; from the third to the last %+.2f %%", name, strings.Join(text, " "), 100*growth)
	if growth > allowed && last-third > 1<<20 {
		m.t.Errorf("%s: memory has grown by %.2f %%, %.2f %% are allowed", name, 100*growth, 100*allowed)
	}
}
