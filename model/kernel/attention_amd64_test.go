//go:build amd64 && !purego

package kernel

import "testing"

// TestScoresNeedRoom: the assembly writes whole lines, and reads a pointer more than there
// are runs.
func TestScoresNeedRoom(t *testing.T) {
	const n, size = 5, 4 // the second run's line ends at 20
	for _, o := range available() {
		if o.name == portable().name {
			continue
		}
		for _, c := range []struct {
			room, less int
			panics     bool
		}{{20, 0, false}, {19, 0, true}, {20, 1, true}} {
			func() {
				defer func() {
					if panics := recover() != nil; panics != c.panics {
						t.Errorf("%s: room for %d scores, %d pointers too few: panics: %v", o.name, c.room, c.less, panics)
					}
				}()
				keys := keyRuns(make([]float32, 3*n), n, size, n).less(c.less)
				o.scores(1, n, 3, make([]float32, 3), 3, keys, 1, make([]float32, c.room), 20)
			}()
		}
	}
}
