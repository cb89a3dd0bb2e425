package kvcache

import (
	"fmt"
	"syscall"
	"unsafe"
)

// mapFloats maps n floats outside the Go heap, all zero, and returns what unmaps them.
func mapFloats(n int) ([]float32, func() error, error) {
	b, err := syscall.Mmap(-1, 0, 4*n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("kvcache: map a pool of %d bytes: %w", 4*n, err)
	}
	// Advice only: a system without huge pages serves small ones.
	_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	unmap := func() error {
		if err := syscall.Munmap(b); err != nil {
			return fmt.Errorf("kvcache: unmap a pool of %d bytes: %w", 4*n, err)
		}
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n), unmap, nil
}
