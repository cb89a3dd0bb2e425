package bench

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// progressEvery bounds how often a progress line is rewritten.
	progressEvery = 100 * time.Millisecond
	progressWidth = 24 // characters of the bar
)

// NewProgress returns a callback for Options.Progress that keeps one line of out, a
// terminal, up to date: the policy, a bar over all runs, and when the end is to be
// expected at the pace so far. now is the clock.
func NewProgress(out io.Writer, now func() time.Time) func(Progress) {
	var began, last time.Time
	return func(p Progress) {
		at := now()
		if began.IsZero() {
			began = at
		}
		whole := p.Run+1 == p.Runs && p.Done == p.Sent
		if !whole && at.Sub(last) < progressEvery {
			return
		}
		last = at
		if whole {
			fmt.Fprint(out, "\r\033[K")
			return
		}
		part := (float64(p.Run) + float64(p.Done)/float64(max(p.Sent, 1))) / float64(max(p.Runs, 1))
		filled := int(part * progressWidth)
		line := fmt.Sprintf("%d/%d %s", p.Run+1, p.Runs, p.Policy)
		if p.KVBlocks > 0 {
			line += fmt.Sprintf(", %d blocks", p.KVBlocks)
		}
		line += fmt.Sprintf("  [%s%s] %d/%d", strings.Repeat("#", filled), strings.Repeat(".", progressWidth-filled), p.Done, p.Sent)
		if spent := at.Sub(began); part > 0 && spent > time.Second {
			line += "  ETA " + time.Duration(float64(spent)*(1-part)/part).Round(time.Second).String()
		}
		fmt.Fprintf(out, "\r\033[K%s", line)
	}
}
