package kernel

import "testing"

func BenchmarkPeak(b *testing.B) {
	o := available()[0]
	a, w, c, z := make([]float32, 9*100), make([]float32, 48*100+1000), make([]float32, 9*48), make([]float32, 48)
	for _, k := range []int{100} {
		c0 := cpuSeconds()
		for b.Loop() {
			for range 100 {
				o.panel(9, k, a, k, w, 48, z, 0, c, 48)
			}
		}
		b.ReportMetric(2e-9*float64(9*48*k*100)*float64(b.N)/(cpuSeconds()-c0), "GFLOP/cpu-s")
	}
}
