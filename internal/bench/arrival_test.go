package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestArrivals(t *testing.T) {
	w := numbered(2000)
	w.Seed = 9
	for i := range w.Requests {
		w.Requests[i].At = time.Duration(i) * time.Second
	}
	times := arrivals(w, Arrival{Kind: Poisson, Rate: 50})
	if !slices.IsSorted(times) || !slices.Equal(times, arrivals(w, Arrival{Kind: Poisson, Rate: 50})) {
		t.Error("Poisson times are not sorted, or differ for one seed")
	}
	// The mean gap of 2000 is within 10 % of 1/50 s (4.5 standard deviations), and so is its deviation.
	if last := times[len(times)-1].Seconds(); last < 36 || last > 44 {
		t.Errorf("2000 arrivals at 50 per second took %v s", last)
	}
	w.Seed = 10
	if slices.Equal(times, arrivals(w, Arrival{Kind: Poisson, Rate: 50})) {
		t.Error("two seeds give the same times")
	}
	if times := arrivals(w, Arrival{Kind: Trace, Speed: 4}); times[8] != 2*time.Second {
		t.Errorf("a trace at speed 4 sends its request of 8 s at %v", times[8])
	}
	if times := arrivals(w, Arrival{Kind: Closed, Concurrency: 1}); times[8] != 0 {
		t.Errorf("a closed loop sends at %v", times[8])
	}
}

func TestOneClientSendsInTheWorkloadsOrder(t *testing.T) {
	for clients, want := range map[int]int{1: 6, 2: 0} {
		w := numbered(6)
		w.Requests[1].After, w.Requests[1].Think = 0, 2*time.Millisecond
		f := &fakes{t: t}
		opt := options(w, 1, "hash")
		opt.Arrival.Concurrency = clients
		settled := 0
		_, err := Replay(t.Context(), opt, func(ctx context.Context, policy string, n, blocks int) (*Cluster, error) {
			c, err := f.start(ctx, policy, n, blocks)
			c.Settle = func(_ context.Context, id string) error {
				settled++
				if id != "r0" || f.clusters[0].all[0].served != settled {
					t.Errorf("settling %s, time %d, after %d requests", id, settled, f.clusters[0].all[0].served)
				}
				return nil
			}
			return c, err
		})
		if err != nil {
			t.Fatal(err)
		}
		if settled != want {
			t.Errorf("%d clients: settled %d times, want %d", clients, settled, want)
		}
		for i, body := range f.clusters[0].all[0].bodies {
			if want := fmt.Sprintf(`"prompt":[%d,`, i); clients == 1 && !strings.Contains(body, want) {
				t.Errorf("request %d is %s", i, body)
			}
		}
	}
}
