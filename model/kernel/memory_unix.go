//go:build unix

package kernel

import (
	"fmt"
	"syscall"
)

// mapBytes maps at least n bytes of zeros, aligned to pages.
func mapBytes(n int) ([]byte, error) {
	const huge = 2 << 20
	n = (n + huge - 1) / huge * huge
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("kernel: map %d bytes for weights: %w", n, err)
	}
	adviseHuge(b)
	return b, nil
}

func unmapBytes(b []byte) {
	if err := syscall.Munmap(b); err != nil {
		panic(fmt.Sprintf("kernel: unmap %d bytes: %v", len(b), err))
	}
}
