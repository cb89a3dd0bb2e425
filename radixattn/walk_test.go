package radixattn

import (
	"fmt"
	"slices"

	"tailor/paging"
)

// walk checks a walk against the twin's blocks, and one that is broken off.
func (w *world) walk() error {
	before := w.tree.String()
	place := map[paging.BlockID]BlockView{paging.NoBlock: {}}
	salts := map[string]int{} // the number of blocks of salts that are behind us
	last := ""
	var ids []paging.BlockID
	for b := range w.tree.Walk {
		parent, met := place[b.Parent]
		twin := w.twin.at(b.Salt, b.Path)
		_, again := place[b.ID]
		switch {
		case twin == nil || twin.id != b.ID || again:
			return fmt.Errorf("block %+v: the twin has %+v", b, twin)
		case !met || b.Parent != paging.NoBlock && parent.Salt != b.Salt || !slices.Equal(parent.Path, b.Path[:len(b.Path)-w.size]):
			return fmt.Errorf("block %+v does not follow block %+v", b, parent)
		case b.Salt != last && salts[b.Salt] > 0:
			return fmt.Errorf("block %+v is apart from the others of its salt", b)
		}
		b.Path = slices.Clone(b.Path)
		place[b.ID] = b
		last = b.Salt
		salts[last]++
		ids = append(ids, b.ID)
	}
	if len(ids) != len(w.twin.blocks) {
		return fmt.Errorf("%d blocks of %d", len(ids), len(w.twin.blocks))
	}
	left := w.choose.IntN(len(ids) + 1)
	first := []paging.BlockID{}
	for b := range w.tree.Walk {
		if left--; left < 0 {
			break
		}
		first = append(first, b.ID)
	}
	if !slices.Equal(first, ids[:len(first)]) {
		return fmt.Errorf("broken off, it went %v, not %v", first, ids)
	}
	if after := w.tree.String(); after != before {
		return fmt.Errorf("it changed the tree from\n%s\nto\n%s", before, after)
	}
	return nil
}
