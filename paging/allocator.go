package paging

import (
	"errors"
	"fmt"
)

// Invariants of an Allocator:
//   - Free() + Held() == Total(), at all times.
//   - A block is on the free list exactly when its ref count is 0.
//   - No block is on the free list twice.

// BlockID names one block: 0 <= id < Total() of its allocator.
type BlockID int32

// NoBlock is the id of no block.
const NoBlock BlockID = -1

// ErrNoFreeBlocks says that a call needed more blocks than are free. Nothing has changed.
var ErrNoFreeBlocks = errors.New("no free blocks")

// Allocator counts the references to a fixed number of blocks and keeps the list of
// those without any. It is not safe for concurrent use: one goroutine owns it.
type Allocator struct {
	refs []int32   // by block
	free []BlockID // a stack: the block released last is the likeliest to be in a CPU cache
}

// NewAllocator returns an allocator of total blocks, all free. The first ones handed
// out are 0, 1, 2, ...
func NewAllocator(total int) *Allocator {
	if total < 0 || total > 1<<31-1 {
		panic(fmt.Sprintf("paging: allocator of %d blocks", total))
	}
	a := &Allocator{refs: make([]int32, total), free: make([]BlockID, total)}
	for i := range a.free {
		a.free[i] = BlockID(total - 1 - i)
	}
	return a
}

// Alloc takes n blocks off the free list, each with a ref count of 1. It gives all of
// them or, with ErrNoFreeBlocks, none.
func (a *Allocator) Alloc(n int) ([]BlockID, error) {
	if n < 0 {
		panic(fmt.Sprintf("paging: alloc of %d blocks", n))
	}
	if n > len(a.free) {
		return nil, fmt.Errorf("%w: %d needed, %d free of %d", ErrNoFreeBlocks, n, len(a.free), len(a.refs))
	}
	ids := make([]BlockID, n)
	for i := range ids {
		id := a.free[len(a.free)-1-i]
		a.refs[id] = 1
		ids[i] = id
	}
	a.free = a.free[:len(a.free)-n]
	return ids, nil
}

// Retain adds a reference to a block that has at least one. A free block cannot be
// retained: its rows may be anybody's.
func (a *Allocator) Retain(id BlockID) {
	if a.Refs(id) == 0 {
		panic(fmt.Sprintf("paging: retain of free block %d", id))
	}
	a.refs[id]++
}

// Release drops a reference and reports whether it was the last one, so that the block
// is free now. Releasing a free block is a double release, and panics.
func (a *Allocator) Release(id BlockID) (freed bool) {
	if a.Refs(id) == 0 {
		panic(fmt.Sprintf("paging: double release of block %d", id))
	}
	a.refs[id]--
	if a.refs[id] > 0 {
		return false
	}
	a.free = append(a.free, id)
	return true
}

// Refs returns the ref count of a block.
func (a *Allocator) Refs(id BlockID) int {
	if id < 0 || int(id) >= len(a.refs) {
		panic(fmt.Sprintf("paging: block %d of an allocator of %d", id, len(a.refs)))
	}
	return int(a.refs[id])
}

// Free returns how many blocks have no reference.
func (a *Allocator) Free() int { return len(a.free) }

// Held returns how many blocks have at least one reference.
func (a *Allocator) Held() int { return len(a.refs) - len(a.free) }

// Total returns how many blocks there are.
func (a *Allocator) Total() int { return len(a.refs) }

// Check proves the invariants, in time linear in Total. The error names the block.
func (a *Allocator) Check() error {
	listed := make([]bool, len(a.refs))
	for _, id := range a.free {
		switch {
		case id < 0 || int(id) >= len(a.refs):
			return fmt.Errorf("paging: free list holds block %d of %d", id, len(a.refs))
		case listed[id]:
			return fmt.Errorf("paging: block %d is on the free list twice", id)
		case a.refs[id] != 0:
			return fmt.Errorf("paging: block %d is on the free list with %d refs", id, a.refs[id])
		}
		listed[id] = true
	}
	for id, refs := range a.refs {
		if refs < 0 || refs == 0 && !listed[id] {
			return fmt.Errorf("paging: block %d has %d refs and is not on the free list", id, refs)
		}
	}
	return nil
}
