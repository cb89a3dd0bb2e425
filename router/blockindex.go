package router

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"tailor/router/policy"
)

var (
	// errEvent says that a replica's events contradict what it said before.
	errEvent = errors.New("router: cache event does not fit")
	// errIndexFull says that a replica's blocks do not fit into the index any more.
	errIndexFull = errors.New("router: the prefix index is full")
)

// blockIndex knows which replicas hold which blocks: all followed replicas in one table,
// so that one walk along a prompt answers for every one of them.
//
//   - A block is in the table while somebody holds it. Its hash stands for its whole path,
//     salt and model included, so equal prefixes on different replicas are one block.
//   - Each copy has a number of its own, which is its bit in a block's set of holders. The
//     bits of copies that are not active are remains and are not looked at.
//   - A replica's tree holds a block's parent whenever it holds the block. So along a chain
//     the sets of holders only shrink, and a match may be bisected.
//   - entries, the blocks of all copies counted with repetition, never exceeds limit.
//   - Blocks lie in slabs and are referred to by number: a million pointers would be the
//     garbage collector's to follow, again and again.
//   - Not safe for concurrent use: the registry's lock covers it.
type blockIndex struct {
	blockSize int
	limit     int
	entries   int
	blocks    map[policy.Hash]blockRef
	slabs     []*slab
	free      []blockRef
	numbers   holders // in use, by active copies and by those still being cleared
	active    holders
}

// blockRef is a block's place in the slabs.
type blockRef int32

const noBlock blockRef = -1

// heldBlock is a block that at least one replica holds.
type heldBlock struct {
	hash   policy.Hash // of the path, under its salt
	open   policy.Hash // of the path as if there were no salt
	path   uint64      // what the block adds to a digest
	parent blockRef    // noBlock: directly under the salt's root
	depth  int32       // blocks above it
	by     holders
}

const slabBlocks = 1 << 12

type slab struct {
	blocks [slabBlocks]heldBlock
	tokens []int32 // blockSize for each
}

// cacheCopy is what the router knows of one replica's cache.
//
//   - digest is the sum of its blocks' path hashes: what the replica says of itself at the
//     same sequence number.
type cacheCopy struct {
	number int
	epoch  string
	seq    uint64
	model  string
	digest uint64
	ids    map[int64]blockRef
}

func newBlockIndex(blockSize, limit int) *blockIndex {
	return &blockIndex{blockSize: blockSize, limit: limit, blocks: map[policy.Hash]blockRef{}}
}

func (x *blockIndex) at(ref blockRef) *heldBlock {
	return &x.slabs[ref/slabBlocks].blocks[ref%slabBlocks]
}

func (x *blockIndex) tokensOf(ref blockRef) []int32 {
	first := int(ref%slabBlocks) * x.blockSize
	return x.slabs[ref/slabBlocks].tokens[first : first+x.blockSize]
}

// place finds room for a block.
func (x *blockIndex) place(b heldBlock, tokens []int32) blockRef {
	if len(x.free) == 0 {
		first := blockRef(len(x.slabs) * slabBlocks)
		x.slabs = append(x.slabs, &slab{tokens: make([]int32, slabBlocks*x.blockSize)})
		for i := blockRef(slabBlocks - 1); i >= 0; i-- {
			x.free = append(x.free, first+i)
		}
	}
	ref := x.free[len(x.free)-1]
	x.free = x.free[:len(x.free)-1]
	*x.at(ref) = b
	copy(x.tokensOf(ref), tokens)
	x.blocks[b.hash] = ref
	return ref
}

// open makes room for a copy. It is looked at only after activate.
func (x *blockIndex) open(epoch, model string) (*cacheCopy, error) {
	for n := range maxFollowed {
		if !x.numbers.has(n) {
			x.numbers.add(n)
			return &cacheCopy{number: n, epoch: epoch, model: model, ids: map[int64]blockRef{}}, nil
		}
	}
	return nil, fmt.Errorf("%w: it tells %d replicas apart", errIndexFull, maxFollowed)
}

func (x *blockIndex) activate(c *cacheCopy) { x.active.add(c.number) }

// retire stops looking at a copy; clear takes its remains away.
func (x *blockIndex) retire(c *cacheCopy) { x.active.remove(c.number) }

// clear removes up to limit blocks of a retired copy; true: that was the last of them,
// and its number is free. In portions, since whoever chooses waits meanwhile.
func (x *blockIndex) clear(c *cacheCopy, limit int) bool {
	for id, ref := range c.ids {
		if limit--; limit < 0 {
			return false
		}
		x.drop(c, id, ref)
	}
	x.numbers.remove(c.number)
	return true
}

// store adds blocks, each the child of the one before, the first the child of parent (-1:
// the salt's root). On an error some of them may have been added: the copy is worthless.
func (x *blockIndex) store(c *cacheCopy, salt string, parent int64, blocks []wireBlock) error {
	above, open := noBlock, policy.Root(policy.UnitTokens, c.model)
	if parent >= 0 {
		ref, found := c.ids[parent]
		if !found {
			return fmt.Errorf("%w: stored under block %d, which is not there", errEvent, parent)
		}
		above, open = ref, x.at(ref).open
	}
	saltHash := policy.SaltHash(salt)
	var path *xxhash.Digest // made when the first block that is new needs it
	for _, w := range blocks {
		if len(w.Tokens) != x.blockSize {
			return fmt.Errorf("%w: block %d has %d tokens, want %d", errEvent, w.ID, len(w.Tokens), x.blockSize)
		}
		if _, found := c.ids[w.ID]; found || w.ID < 0 {
			return fmt.Errorf("%w: block %d is stored twice", errEvent, w.ID)
		}
		if x.entries == x.limit {
			return fmt.Errorf("%w: %d blocks", errIndexFull, x.limit)
		}
		open = policy.Next(open, w.Tokens)
		hash := open
		if salt != "" {
			hash = policy.SaltedHash(open, saltHash)
		}
		ref, found := x.blocks[hash]
		switch {
		case !found:
			if path == nil {
				path = x.pathDigest(salt, above)
			}
			writeTokens(path, w.Tokens)
			b := heldBlock{hash: hash, open: open, parent: above, path: path.Sum64()}
			if above != noBlock {
				b.depth = x.at(above).depth + 1
			}
			ref = x.place(b, w.Tokens)
		case x.at(ref).by.has(c.number):
			return fmt.Errorf("%w: block %d repeats another one's path", errEvent, w.ID)
		case path != nil:
			writeTokens(path, w.Tokens)
		}
		b := x.at(ref)
		b.by.add(c.number)
		c.ids[w.ID] = ref
		c.digest += b.path
		x.entries++
		above = ref
	}
	return nil
}

// remove takes blocks away.
func (x *blockIndex) remove(c *cacheCopy, blocks []wireBlock) error {
	for _, w := range blocks {
		ref, found := c.ids[w.ID]
		if !found {
			return fmt.Errorf("%w: block %d is removed and was not there", errEvent, w.ID)
		}
		x.drop(c, w.ID, ref)
	}
	return nil
}

func (x *blockIndex) drop(c *cacheCopy, id int64, ref blockRef) {
	b := x.at(ref)
	delete(c.ids, id)
	c.digest -= b.path
	x.entries--
	if b.by.remove(c.number); b.by.empty() {
		delete(x.blocks, b.hash)
		x.free = append(x.free, ref)
	}
}

// holds says whether the copy has the block of that hash.
func (x *blockIndex) holds(c *cacheCopy, h policy.Hash) bool {
	ref, found := x.blocks[h]
	return found && x.at(ref).by.has(c.number)
}

// match finds for every active copy how many blocks of the chain, from its beginning, it
// holds; lengths is by the copy's number. It changes nothing in the index.
func (x *blockIndex) match(chain []policy.Hash, lengths *[maxFollowed]int) {
	m := matcher{index: x, chain: chain, lengths: lengths}
	m.between(-1, x.active, len(chain), holders{})
}

type matcher struct {
	index   *blockIndex
	chain   []policy.Hash
	lengths *[maxFollowed]int
}

// between settles those that hold the block at low and not the one at high.
func (m *matcher) between(low int, lowSet holders, high int, highSet holders) {
	if lowSet == highSet {
		return
	}
	if high-low == 1 {
		lowSet.without(highSet).each(func(number int) { m.lengths[number] = high })
		return
	}
	middle := low + (high-low)/2
	var set holders
	if ref, found := m.index.blocks[m.chain[middle]]; found {
		set = m.index.at(ref).by.and(lowSet)
	}
	m.between(low, lowSet, middle, set)
	m.between(middle, set, high, highSet)
}

// pathDigest is the state of a digest that has taken in the path down to above. The salt
// is preceded by its length, as a varint: salt and tokens cannot be cut otherwise.
func (x *blockIndex) pathDigest(salt string, above blockRef) *xxhash.Digest {
	d := xxhash.New()
	_, _ = d.Write(binary.AppendUvarint(nil, uint64(len(salt)))) // a digest never fails
	_, _ = d.WriteString(salt)
	var path [][]int32
	if above != noBlock {
		// Counted, since a replica that drops a parent before its child could otherwise
		// make a circle of places that are used again.
		for n, ref := x.at(above).depth, above; n >= 0 && ref != noBlock; n, ref = n-1, x.at(ref).parent {
			path = append(path, x.tokensOf(ref))
		}
	}
	for _, tokens := range slices.Backward(path) {
		writeTokens(d, tokens)
	}
	return d
}

func writeTokens(d *xxhash.Digest, tokens []int32) {
	var stack [4 * 32]byte
	b := stack[:0]
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	_, _ = d.Write(b)
}
