package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	"gorgonia.org/tensor"
)

var _ tensor.BLAS = (*Implementation)(nil)

func newRand(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func random(r *rand.Rand, n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(r.NormFloat64())
	}
	return s
}

// TestSgemm compares with gonum over random shapes, transposes, strides and factors.
// What lies between the rows of C must stay.
func TestSgemm(t *testing.T) {
	r := newRand(t)
	x := New(2)
	defer x.Close()
	own := 0
	for range 300 {
		m, n, k := 1+r.IntN(70), 1+r.IntN(120), 1+r.IntN(90)
		if m*n*k >= small {
			own++
		}
		transposes := []blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans}
		tA, tB := transposes[r.IntN(3)], transposes[r.IntN(3)]
		gap := func() int { return r.IntN(3) * r.IntN(2) }
		lda, ldb, ldc := k+gap(), n+gap(), n+gap()
		aRows, bRows := m, k
		if tA != blas.NoTrans {
			aRows, lda = k, m+gap()
		}
		if tB != blas.NoTrans {
			bRows, ldb = n, k+gap()
		}
		a, b, c := random(r, aRows*lda), random(r, bRows*ldb), random(r, m*ldc)
		factors := []float32{0, 1, 1, -0.5, 2}
		alpha, beta := factors[r.IntN(5)], factors[r.IntN(5)]
		want := append([]float32(nil), c...)
		gonum.Implementation{}.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, want, ldc)
		if beta == 0 {
			for i := range c {
				if i%ldc < n {
					c[i] = float32(math.NaN())
				}
			}
		}
		x.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		for i := range c {
			if !(math.Abs(float64(c[i]-want[i])) <= 1e-4) {
				t.Fatalf("%c %c, %d x %d x %d, strides %d %d %d, alpha %g, beta %g: element %d is %g, want %g",
					tA, tB, m, n, k, lda, ldb, ldc, alpha, beta, i, c[i], want[i])
			}
		}
	}
	if own == 0 {
		t.Error("all products went to gonum")
	}
}

// TestSgemmPanics as gonum does.
func TestSgemmPanics(t *testing.T) {
	x := New(1)
	defer x.Close()
	const n = 40
	s, short := make([]float32, n*n), make([]float32, n*n-1)
	message := func(f func()) (text string) {
		defer func() { text = fmt.Sprint(recover()) }()
		f()
		return
	}
	type sgemm func(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)
	for i, f := range []func(sgemm){
		func(f sgemm) { f('x', 'N', n, n, n, 1, s, n, s, n, 0, s, n) },
		func(f sgemm) { f('N', 'x', n, n, n, 1, s, n, s, n, 0, s, n) },
		func(f sgemm) { f('N', 'N', -1, n, n, 1, s, n, s, n, 0, s, n) },
		func(f sgemm) { f('N', 'N', n, n, n, 1, s, n-1, s, n, 0, s, n) },
		func(f sgemm) { f('N', 'N', n, n, n, 1, s, n, s, n-1, 0, s, n) },
		func(f sgemm) { f('N', 'N', n, n, n, 1, s, n, s, n, 0, s, n-1) },
		func(f sgemm) { f('T', 'N', n, n, n, 1, short, n, s, n, 0, s, n) },
		func(f sgemm) { f('N', 'T', n, n, n, 1, s, n, short, n, 0, s, n) },
		func(f sgemm) { f('N', 'N', n, n, n, 1, s, n, s, n, 0, short, n) },
	} {
		got, want := message(func() { f(x.Sgemm) }), message(func() { f(gonum.Implementation{}.Sgemm) })
		if got != want || got == "<nil>" {
			t.Errorf("call %d panics with %q, gonum with %q", i, got, want)
		}
	}
}

// TestConcurrentSgemm: multiplications share one packed matrix, one after the other.
func TestConcurrentSgemm(t *testing.T) {
	r := newRand(t)
	x := New(2)
	defer x.Close()
	var callers sync.WaitGroup
	for n := 60; n < 100; n += 10 {
		a, b, want := random(r, n*n), random(r, n*n), make([]float32, n*n)
		gonum.Implementation{}.Sgemm('N', 'N', n, n, n, 1, a, n, b, n, 0, want, n)
		callers.Go(func() {
			c := make([]float32, n*n)
			for range 20 {
				x.Sgemm('N', 'N', n, n, n, 1, a, n, b, n, 0, c, n)
				for i := range c {
					if math.Abs(float64(c[i]-want[i])) > 1e-4 {
						t.Errorf("%d x %d: element %d is %g, want %g", n, n, i, c[i], want[i])
						return
					}
				}
			}
		})
	}
	callers.Wait()
}

// BenchmarkSgemm multiplies in a shape of GPT-2 124M.
func BenchmarkSgemm(b *testing.B) {
	const m, n, k = 512, 3072, 768
	a, w, c := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
	for i := range a {
		a[i] = 1
	}
	own := New(2)
	defer own.Close()
	for _, x := range []struct {
		name string
		tensor.BLAS
	}{{"kernel", own}, {"gonum", gonum.Implementation{}}} {
		b.Run(x.name, func(b *testing.B) {
			for b.Loop() {
				x.Sgemm('N', 'N', m, n, k, 1, a, k, w, n, 0, c, n)
			}
			b.ReportMetric(2*m*n*k*float64(b.N)/1e9/b.Elapsed().Seconds(), "GFLOP/s")
		})
	}
}
