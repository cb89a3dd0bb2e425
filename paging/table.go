package paging

import "fmt"

// BlockTable lists the blocks of one sequence in order: block i holds the token
// positions [i*B, (i+1)*B), for blocks of B rows. It counts no references; whoever
// appends to it does. The zero table is empty and ready to use.
type BlockTable struct {
	ids []BlockID
}

// Append adds blocks at the end.
func (t *BlockTable) Append(ids ...BlockID) { t.ids = append(t.ids, ids...) }

// Len returns the number of blocks.
func (t *BlockTable) Len() int { return len(t.ids) }

// At returns block i.
func (t *BlockTable) At(i int) BlockID { return t.ids[i] }

// Replace puts another block in the place of block i and returns the one that was there.
func (t *BlockTable) Replace(i int, id BlockID) (old BlockID) {
	if i < 0 || i >= len(t.ids) {
		panic(fmt.Sprintf("paging: replace of block %d in a table of %d", i, len(t.ids)))
	}
	old, t.ids[i] = t.ids[i], id
	return old
}

// Blocks returns the blocks [from, to). It aliases the table and must not be changed.
func (t *BlockTable) Blocks(from, to int) []BlockID { return t.ids[from:to:to] }

// BlocksFor returns how many blocks of blockSize rows hold that many tokens.
func BlocksFor(tokens, blockSize int) int { return (tokens + blockSize - 1) / blockSize }
