package policy

import (
	"fmt"
	"slices"
	"testing"
)

// BenchmarkRemap removes 1 of 16 replicas and counts which of 10,000 keys have another
// home afterwards; moved of a policy that hashes nothing are those that it places by load
// or by chance. Run with -benchtime 1x.
func BenchmarkRemap(b *testing.B) {
	const n, keys, gone = 16, 10_000, 5
	requests := make([]Request, keys)
	for k := range requests {
		requests[k] = prompt(k, 80, k, 40)
		requests[k].Session = fmt.Sprint("s", k)
	}
	for _, p := range all(b, DefaultOptions()) {
		b.Run(p.Name(), func(b *testing.B) {
			moved := 0
			for b.Loop() {
				moved = 0
				before := fleet(n)
				after := slices.Delete(fleet(n), gone, gone+1)
				for _, r := range requests {
					if choose(b, p, r, before).Replica != choose(b, p, r, after).Replica {
						moved++
					}
				}
			}
			b.ReportMetric(float64(moved), "moved")
			b.ReportMetric(float64(moved)/keys*n, "moved*N/keys")
			b.ReportMetric(0, "ns/op")
		})
	}
}
