// Package blas is the matrix multiplication of package kernel as a BLAS: gonum's, with
// Sgemm replaced. Registered with tensor.Use it multiplies for gorgonia at several times
// the speed of what gorgonia has of its own.
package blas

import (
	"fmt"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"tailor/model/kernel"
)

// small is the number of products below which packing costs more than it saves.
const small = 1 << 15

// Implementation is gonum's BLAS with a Sgemm of its own. Sums run over k in ascending
// order, fused where the processor fuses; gonum's run in blocks of 64. It is safe for
// concurrent use; multiplications wait for each other, each having all threads.
type Implementation struct {
	gonum.Implementation

	mu      sync.Mutex
	team    *kernel.Team
	memory  *kernel.Memory // of the packed B
	room    int            // of memory, in floats
	rows    []float32      // A, where it does not lie in rows of length k
	product []float32      // A*B, where it is not C
}

// New makes an implementation that multiplies on threads threads, the caller's included.
// Close it.
func New(threads int) *Implementation {
	return &Implementation{team: kernel.NewTeam(threads, 1)}
}

// Close ends the threads. Nothing may be multiplied after it.
func (x *Implementation) Close() { x.team.Close() }

// Sgemm computes C = alpha * op(A) * op(B) + beta * C. Arguments that make no sense panic
// as gonum's do.
func (x *Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if min(m, n, k) < 1 || m*n*k < small || alpha == 0 || !valid(tA, m, k, a, lda) || !valid(tB, k, n, b, ldb) || !valid(blas.NoTrans, m, n, c, ldc) {
		x.Implementation.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.pack(tB, k, n, b, ldb)
	if tA != blas.NoTrans || lda != k {
		x.rows = grow(x.rows, m*k)
		unroll(x.rows, tA, m, k, a, lda)
		a = x.rows
	}
	if alpha == 1 && beta == 0 && ldc == n {
		x.team.Matmul(c, a, m, w, kernel.None)
		return
	}
	x.product = grow(x.product, m*n)
	x.team.Matmul(x.product, a, m, w, kernel.None)
	for i := range m {
		row := c[i*ldc:][:n]
		for j, p := range x.product[i*n:][:n] {
			// With beta 0 what stood in C does not count, not even as NaN.
			if row[j] *= beta; beta == 0 {
				row[j] = 0
			}
			row[j] += alpha * p
		}
	}
}

// valid says whether s holds a matrix of rows x columns, or its transpose.
func valid(t blas.Transpose, rows, columns int, s []float32, ld int) bool {
	switch t {
	case blas.Trans, blas.ConjTrans:
		rows, columns = columns, rows
	case blas.NoTrans:
	default:
		return false
	}
	return ld >= columns && len(s) >= (rows-1)*ld+columns
}

// pack packs op(B), k x n, where the B before it was.
func (x *Implementation) pack(t blas.Transpose, k, n int, b []float32, ldb int) *kernel.Matrix {
	if need := kernel.MatrixSize(kernel.Float32, k, n); need > x.room {
		m, err := kernel.NewMemory(need)
		if err != nil {
			panic(fmt.Sprintf("blas: multiply by %d x %d: %v", k, n, err))
		}
		x.memory, x.room = m, need
	}
	x.memory.Reset()
	if t != blas.NoTrans && ldb == k {
		return kernel.PackTransposed(x.memory, kernel.Float32, b[:n*k], nil, k, n)
	}
	if t == blas.NoTrans && ldb == n {
		return kernel.Pack(x.memory, kernel.Float32, b[:k*n], nil, k, n)
	}
	x.product = grow(x.product, k*n)
	unroll(x.product, t, k, n, b, ldb)
	return kernel.Pack(x.memory, kernel.Float32, x.product, nil, k, n)
}

// unroll copies op(s), rows x columns, to dst without gaps.
func unroll(dst []float32, t blas.Transpose, rows, columns int, s []float32, ld int) {
	for i := range rows {
		row := dst[i*columns:][:columns]
		if t == blas.NoTrans {
			copy(row, s[i*ld:])
			continue
		}
		for j := range row {
			row[j] = s[j*ld+i]
		}
	}
}

// grow is a slice of length n with the memory of s, if that is enough.
func grow(s []float32, n int) []float32 {
	if n > cap(s) {
		return make([]float32, n)
	}
	return s[:n]
}
