// Package blocklog keeps the last changes of a replica's prefix cache, numbered, so that
// others can hold copies of what it has and tell whether these are right.
//
// # Following
//
// A copy begins with a [Snapshot], which is of a [Position]: the epoch, which is the life
// of one cache until it is reset, and the number of the last event. From there [Log.After]
// has the events that follow, without holes. Where they are gone it says [ErrLost], and the
// copy has to begin anew. At any position the copy's blocks must add up to its [Head]'s
// digest.
//
// A reader has no state but its position, which is its own. So readers may be any number,
// be as slow as they like, and leave without a word: the log keeps what it has room for.
//
// # Digest
//
// The digest of a cache is the sum, modulo 2^64, of a hash of each of its blocks: XXH64 of
// the length of its salt as a varint, the salt, and all tokens from the path's beginning to
// the block's end, each as 4 bytes, little-endian. Sums can be kept up as blocks come and
// go, in any order, and do not depend on the ids that the cache gave its blocks.
package blocklog

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"tailor/kvcache"
)

// ErrLost says that what follows a position is not known any more, or that there is no such
// position.
var ErrLost = errors.New("the events after that position are gone")

// Bounds of a log.
const (
	// maxEventBlocks is how many blocks an event tells of at most: more are split, so that
	// nobody has to take in an event of any length.
	maxEventBlocks = 1024
	// A log keeps as many blocks' events as the pool has blocks, within these bounds. For
	// whoever is behind by more, a snapshot is shorter than what was missed. The bound is 2
	// to 4 MiB of tokens, which lasts for half a minute at 10,000 tokens a second.
	minKept, maxKept = 2 * maxEventBlocks, 1 << 15
)

// Kind is what an event says of its blocks.
type Kind string

const (
	Stored  Kind = "stored"  // the cache took them, each the child of the one before
	Removed Kind = "removed" // they were evicted, children before parents
	Cleared Kind = "cleared" // there is no block any more; the last event of its epoch
)

// Event is one change. Readers share it: it must not be changed.
type Event struct {
	Seq    uint64 // from 1 in each epoch, without holes
	Kind   Kind
	Salt   string          // of Stored
	Parent kvcache.BlockID // of the first block stored; NoBlock: none
	Blocks []kvcache.BlockID
	Tokens []int32 // of Stored: those of the blocks, in order

	epoch uint64
}

// Position is a moment in the life of a cache: right after event Seq of Epoch.
type Position struct {
	Epoch string
	Seq   uint64
}

// Head is the last position there is.
type Head struct {
	Position
	Digest uint64
	News   <-chan struct{} // closed when it is the last no more
}

// Log is a [kvcache.Sink] with a memory.
//
//   - The goroutine that owns the cache calls the Sink's methods, Snapshot and Check; any
//     goroutine may call the others. None of them waits for another one but for moments.
//   - digest is the sum of paths[id] over the blocks that the cache holds after event seq.
//   - events are the last there were, in order: Cleared is followed by number 1 of the next
//     epoch, any other by the next number.
//   - kept is the sum of their weights; beyond most, only the last event is left.
type Log struct {
	blockSize int
	paths     []uint64 // by block: what it adds to the digest; the cache's goroutine's own
	hash      xxhash.Digest
	buffer    []byte
	most      int
	started   string // random: no other log has it

	mu     sync.Mutex
	epoch  uint64
	name   string // of the epoch
	seq    uint64
	digest uint64
	events []Event
	kept   int
	news   chan struct{} // nil: nobody waits
}

// New returns a log of what happens to kv from now on. The caller owns kv.
func New(kv *kvcache.Manager) *Log {
	cfg := kv.Config()
	l := &Log{
		blockSize: cfg.BlockSize,
		paths:     make([]uint64, cfg.Blocks),
		most:      min(max(cfg.Blocks, minKept), maxKept),
		started:   strings.ToLower(rand.Text()),
	}
	l.name = l.nameOf(0)
	for b := range kv.Walk {
		l.begin(b.Salt)
		l.paths[b.ID] = l.add(b.Path)
		l.digest += l.paths[b.ID]
	}
	kv.Watch(l)
	return l
}

func (l *Log) nameOf(epoch uint64) string { return l.started + "." + strconv.FormatUint(epoch, 10) }

// Epoch names the present life of the cache.
func (l *Log) Epoch() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name
}

// Oldest is the first position of the present epoch that events are known from.
func (l *Log) Oldest() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := l.find(l.epoch, 0)
	return Position{l.name, l.seq - uint64(len(l.events)-i)}
}

// After returns up to limit events that follow a position, and the last position there is.
// If no event follows, then that is the one asked for. It fails with ErrLost, and then the
// head is where to begin anew.
func (l *Log) After(p Position, limit int) ([]Event, Head, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Epoch == l.name && p.Seq == l.seq && l.news == nil {
		l.news = make(chan struct{})
	}
	head := Head{Position: Position{l.name, l.seq}, Digest: l.digest, News: l.news}
	if p == head.Position {
		return nil, head, nil
	}
	epoch, err := l.numberOf(p.Epoch)
	i, found := l.find(epoch, p.Seq+1)
	if err != nil || !found {
		return nil, head, ErrLost
	}
	n := 1
	for n < min(limit, len(l.events)-i) && l.events[i+n].epoch == epoch {
		n++
	}
	return slices.Clone(l.events[i : i+n]), head, nil
}

// numberOf is the way back from an epoch's name.
func (l *Log) numberOf(name string) (uint64, error) {
	text, _ := strings.CutPrefix(name, l.started+".")
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err == nil && l.nameOf(epoch) != name {
		err = ErrLost
	}
	return epoch, err
}

// find is the place of an event, or of the first after it.
func (l *Log) find(epoch, seq uint64) (int, bool) {
	return slices.BinarySearchFunc(l.events, Event{epoch: epoch, Seq: seq}, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.Seq, b.Seq))
	})
}

// Stored implements [kvcache.Sink].
func (l *Log) Stored(salt string, parent kvcache.BlockID, path []int32, blocks []kvcache.BlockID) {
	start := len(path) - len(blocks)*l.blockSize
	l.begin(salt)
	l.add(path[:start])
	// One copy of each serves all events.
	blocks, tokens := slices.Clone(blocks), slices.Clone(path[start:])
	for len(blocks) > 0 {
		n := min(len(blocks), maxEventBlocks)
		e := Event{Kind: Stored, Salt: salt, Parent: parent, Blocks: blocks[:n:n], Tokens: tokens[: n*l.blockSize : n*l.blockSize]}
		sum := uint64(0)
		for i, id := range e.Blocks {
			l.paths[id] = l.add(e.Tokens[i*l.blockSize : (i+1)*l.blockSize])
			sum += l.paths[id]
		}
		l.append(e, sum)
		parent, blocks, tokens = e.Blocks[n-1], blocks[n:], tokens[n*l.blockSize:]
	}
}

// Removed implements [kvcache.Sink].
func (l *Log) Removed(blocks []kvcache.BlockID) {
	for part := range slices.Chunk(slices.Clone(blocks), maxEventBlocks) {
		sum := uint64(0)
		for _, id := range part {
			sum -= l.paths[id]
		}
		l.append(Event{Kind: Removed, Parent: kvcache.NoBlock, Blocks: part}, sum)
	}
}

// Cleared implements [kvcache.Sink]: it ends the epoch.
func (l *Log) Cleared() {
	l.append(Event{Kind: Cleared, Parent: kvcache.NoBlock}, 0)
}

// append numbers an event and makes it known; it changes the digest by sum.
func (l *Log) append(e Event, sum uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	l.digest += sum
	e.Seq, e.epoch = l.seq, l.epoch
	if e.Kind == Cleared {
		l.epoch++
		l.name, l.seq, l.digest = l.nameOf(l.epoch), 0, 0
	}
	l.events = append(l.events, e)
	l.kept += weight(e)
	drop := 0
	for ; l.kept > l.most && drop < len(l.events)-1; drop++ {
		l.kept -= weight(l.events[drop])
		l.events[drop] = Event{} // or the array would keep its blocks
	}
	l.events = l.events[drop:]
	if l.news != nil {
		close(l.news)
		l.news = nil
	}
}

// weight is an event's part of what the log may keep.
func weight(e Event) int { return 1 + len(e.Blocks) }

// begin starts the hash of a path.
func (l *Log) begin(salt string) {
	l.hash.Reset()
	l.buffer = binary.AppendUvarint(l.buffer[:0], uint64(len(salt)))
	_, _ = l.hash.Write(l.buffer) // a hash never fails
	_, _ = l.hash.WriteString(salt)
}

// add goes on with it, and returns the hash of the path so far.
func (l *Log) add(tokens []int32) uint64 {
	buffer := l.buffer
	for part := range slices.Chunk(tokens, 256) {
		buffer = buffer[:0]
		for _, token := range part {
			buffer = binary.LittleEndian.AppendUint32(buffer, uint32(token))
		}
		_, _ = l.hash.Write(buffer)
	}
	l.buffer = buffer
	return l.hash.Sum64()
}
