package kvcache

import (
	"fmt"
	"syscall"
	"unsafe"
)

// mapNumbers maps n numbers outside the Go heap, all zero, and returns what unmaps them.
func mapNumbers[T number](n int) ([]T, func() error, error) {
	var one T
	bytes := n * int(unsafe.Sizeof(one))
	b, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("kvcache: map a pool of %d bytes: %w", bytes, err)
	}
	// Advice only: a system without huge pages serves small ones.
	_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	unmap := func() error {
		if err := syscall.Munmap(b); err != nil {
			return fmt.Errorf("kvcache: unmap a pool of %d bytes: %w", bytes, err)
		}
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), unmap, nil
}
