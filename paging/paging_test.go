package paging

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestModelAllocator runs an allocator against a plain map of ref counts.
func TestModelAllocator(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const total = 7
	a, refs := NewAllocator(total), make(map[BlockID]int)
	for i := range 20_000 {
		id := BlockID(r.IntN(total))
		switch r.IntN(3) {
		case 0:
			n := r.IntN(total + 2)
			ids, err := a.Alloc(n)
			if wantErr := n > total-len(refs); wantErr != (err != nil) || err != nil && !errors.Is(err, ErrNoFreeBlocks) {
				t.Fatalf("seed %d, operation %d: alloc of %d with %d free: %v", seed, i, n, total-len(refs), err)
			} else if !wantErr && len(ids) != n {
				t.Fatalf("seed %d, operation %d: alloc of %d gave %v", seed, i, n, ids)
			}
			for _, id := range ids {
				if refs[id] != 0 {
					t.Fatalf("seed %d, operation %d: block %d handed out with %d refs", seed, i, id, refs[id])
				}
				refs[id] = 1
			}
		case 1:
			if refs[id] > 0 {
				a.Retain(id)
				refs[id]++
			}
		case 2:
			if refs[id] > 0 {
				refs[id]--
				if freed := a.Release(id); freed != (refs[id] == 0) {
					t.Fatalf("seed %d, operation %d: release of block %d with %d refs left: freed %v", seed, i, id, refs[id], freed)
				}
				if refs[id] == 0 {
					delete(refs, id)
				}
			}
		}
		if err := a.Check(); err != nil {
			t.Fatalf("seed %d, operation %d: %v", seed, i, err)
		}
		if a.Held() != len(refs) || a.Free()+a.Held() != total || a.Total() != total || a.Refs(id) != refs[id] {
			t.Fatalf("seed %d, operation %d: %d free, %d held, want %d held; block %d has %d refs, want %d",
				seed, i, a.Free(), a.Held(), len(refs), id, a.Refs(id), refs[id])
		}
	}
}

func TestAllocIsAllOrNothing(t *testing.T) {
	a := NewAllocator(3)
	first, err := a.Alloc(2)
	if err != nil || !slices.Equal(first, []BlockID{0, 1}) {
		t.Fatalf("alloc of 2: %v, %v", first, err)
	}
	if ids, err := a.Alloc(2); ids != nil || !errors.Is(err, ErrNoFreeBlocks) {
		t.Errorf("alloc of 2 with 1 free: %v, %v", ids, err)
	}
	if a.Free() != 1 {
		t.Errorf("%d free after a failed alloc, want 1", a.Free())
	}
}

// TestFault12_double_free: a block released once too often, or used without a reference,
// is a caller's bug that must not go unseen.
func TestFault12_double_free(t *testing.T) {
	for name, misuse := range map[string]func(a *Allocator){
		"release of a free block":    func(a *Allocator) { a.Release(2) },
		"second release":             func(a *Allocator) { a.Release(0); a.Release(0) },
		"retain of a free block":     func(a *Allocator) { a.Retain(2) },
		"release of an unknown one":  func(a *Allocator) { a.Release(3) },
		"release of no block":        func(a *Allocator) { a.Release(NoBlock) },
		"alloc of a negative number": func(a *Allocator) { a.Alloc(-1) },
		"allocator of less than 0":   func(*Allocator) { NewAllocator(-1) },
	} {
		t.Run(name, func(t *testing.T) {
			a := NewAllocator(3)
			if _, err := a.Alloc(1); err != nil {
				t.Fatal(err)
			}
			mustPanic(t, func() { misuse(a) })
			if err := a.Check(); err != nil {
				t.Errorf("after the panic: %v", err)
			}
		})
	}
}

// TestCheckFindsWhatIsBroken breaks each invariant once.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	for name, damage := range map[string]func(a *Allocator){
		"leak":              func(a *Allocator) { a.refs[0] = 0 },
		"free with refs":    func(a *Allocator) { a.refs[2] = 1 },
		"negative refs":     func(a *Allocator) { a.refs[0] = -1 },
		"listed twice":      func(a *Allocator) { a.free = append(a.free, 2) },
		"unknown block":     func(a *Allocator) { a.free = append(a.free, 3) },
		"dropped from list": func(a *Allocator) { a.free = a.free[1:] },
	} {
		a := NewAllocator(3)
		if _, err := a.Alloc(1); err != nil {
			t.Fatal(err)
		}
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		damage(a)
		if a.Check() == nil {
			t.Errorf("%s: not found", name)
		}
	}
}

func TestBlockTable(t *testing.T) {
	var table BlockTable
	table.Append(4, 5)
	table.Append(6)
	if old := table.Replace(1, 9); old != 5 {
		t.Errorf("replace gave %d, want 5", old)
	}
	if got := table.Blocks(1, table.Len()); !slices.Equal(got, []BlockID{9, 6}) || table.At(0) != 4 {
		t.Errorf("blocks from 1: %v, block 0: %d", got, table.At(0))
	}
	mustPanic(t, func() { table.Replace(3, 1) })
}

func TestBlocksFor(t *testing.T) {
	for _, c := range []struct{ tokens, size, want int }{{0, 16, 0}, {1, 16, 1}, {15, 16, 1}, {16, 16, 1}, {17, 16, 2}, {5, 1, 5}} {
		if got := BlocksFor(c.tokens, c.size); got != c.want {
			t.Errorf("%d tokens in blocks of %d: %d, want %d", c.tokens, c.size, got, c.want)
		}
	}
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}
