package kernel

import "syscall"

// adviseHuge asks for huge pages. It is advice: a system without them serves small
// ones, so the error says nothing a caller could use.
func adviseHuge(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) }
