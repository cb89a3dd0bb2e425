package kernel

import "fmt"

// KV gives access to the keys and values of one sequence, stored in blocks of
// BlockSize positions: keys [heads][dim][BlockSize], values [heads][BlockSize][dim].
// They are float32, from Keys and Values, or bfloat16, from Keys16 and Values16, as
// BFloat16 says. Threads call it at the same time.
type KV interface {
	BlockSize() int
	BFloat16() bool
	Keys(layer, block int) []float32
	Values(layer, block int) []float32
	Keys16(layer, block int) []uint16
	Values16(layer, block int) []uint16
}

// element is the type of a key or value: float32, or bfloat16 as uint16.
type element interface{ float32 | uint16 }

// reader finds keys and values of one type, and has the loops that compute with them.
type reader[T element] struct {
	keys, values func(kv KV, layer, block int) []T // of all heads
	scores       func(rows, n, dim int, q []float32, ldq int, keys, next []T, ldk int, scale float32, s []float32, lds int)
	weigh        func(rows, n, dim int, p []float32, ldp int, v, next []T, dst []float32, ldd int)
}

// Span is a run of consecutive positions of one sequence.
type Span struct {
	KV KV
	// Start is the position of the first row, Rows how many there are.
	Start, Rows int
	// Source is the index of the first row in qkv, Out in the result.
	Source, Out int
}

// Heads is the shape of attention in one layer.
type Heads struct {
	Layer, Heads, Dim int
	Scale             float32 // of the scores
}

func (h Heads) width() int { return h.Heads * h.Dim }

// scoreStride is the room of one row of scores: whole vectors, and one more, since
// scores are written a vector at a time from any position.
func scoreStride(context int) int { return (context+lanes-1)/lanes*lanes + lanes }

// attend is one layer's attention on its way through the team. A piece is one head of one
// tile of up to tileRows rows; all tiles of a head come before the next head, so that its
// keys and values stay in the cache. A unit is a run of pieces.
type attend struct {
	team   *Team
	dst    []float32
	qkv    []float32
	heads  Heads
	spans  []Span
	tiles  int
	pieces int // of a unit
}

// attendUnits is into how many units attention is cut for each thread: enough to even out
// that tiles differ in length, as few as that takes, since a piece may be a microsecond.
const attendUnits = 16

// Attend computes dst[Out+i][heads*dim] for every row i of every span: softmax of the
// scaled scores of its queries, qkv[Source+i][0:heads*dim], with the keys of positions
// 0 to Start+i, times the values of these positions.
func (t *Team) Attend(dst, qkv []float32, spans []Span, h Heads) {
	tiles := 0
	for _, s := range spans {
		if s.Start+s.Rows > t.context {
			panic(fmt.Sprintf("kernel: attention at position %d, context is %d", s.Start+s.Rows-1, t.context))
		}
		tiles += spanTiles(s)
	}
	all := tiles * h.Heads
	pieces := max(1, all/(t.Threads()*attendUnits))
	t.attend = attend{team: t, dst: dst, qkv: qkv, heads: h, spans: spans, tiles: tiles, pieces: pieces}
	t.Run((all+pieces-1)/pieces, &t.attend)
	t.attend = attend{}
}

func spanTiles(s Span) int { return (s.Rows + tileRows - 1) / tileRows }

// Unit attends with a run of pieces.
func (j *attend) Unit(thread, unit int) {
	for p := unit * j.pieces; p < min((unit+1)*j.pieces, j.tiles*j.heads.Heads); p++ {
		j.piece(thread, p/j.tiles, p%j.tiles)
	}
}

// piece attends with one head of one tile, counted over all spans.
func (j *attend) piece(thread, head, tile int) {
	for i := range j.spans {
		n := spanTiles(j.spans[i])
		if tile < n {
			j.tile(thread, &j.spans[i], head, n-1-tile) // the longest first
			return
		}
		tile -= n
	}
}

func (j *attend) tile(thread int, s *Span, head, tile int) {
	if s.KV.BFloat16() {
		attendTile(j, &j.team.read16, thread, s, head, tile)
	} else {
		attendTile(j, &j.team.read, thread, s, head, tile)
	}
}

func attendTile[T element](j *attend, read *reader[T], thread int, s *Span, head, tile int) {
	layer, dim, width := j.heads.Layer, j.heads.Dim, j.heads.width()
	first := tile * tileRows
	rows := min(tileRows, s.Rows-first)
	q := j.qkv[(s.Source+first)*3*width+head*dim:]
	dst := j.dst[(s.Out+first)*width+head*dim:]
	stride := scoreStride(j.team.context)
	scores := j.team.scratch[thread].scores
	common := s.Start + first + 1 // positions that all rows see; row r sees r more
	all := common + rows - 1
	size := s.KV.BlockSize()
	from, to := head*dim*size, (head+1)*dim*size // of the head's keys, or values, in a block

	keys := read.keys(s.KV, layer, 0)[from:to]
	for b, p := 0, 0; p < all; b, p = b+1, p+size {
		var next []T
		if p+size < all {
			next = read.keys(s.KV, layer, b+1)[from:to]
		} else {
			next = read.values(s.KV, layer, 0)[from:to]
		}
		read.scores(rows, min(size, all-p), dim, q, 3*width, keys, next, size, j.heads.Scale, scores[p:], stride)
		keys = next
	}
	var sums [tileRows]float32
	for r := range rows {
		sums[r] = j.team.ops.softmax(scores[r*stride:][:common+r])
		clear(dst[r*width:][:dim])
	}
	v := read.values(s.KV, layer, 0)[from:to]
	for b, p := 0, 0; p < all; b, p = b+1, p+size {
		next := v
		if p+size < all {
			next = read.values(s.KV, layer, b+1)[from:to]
		}
		n := max(0, min(size, common-p))
		if n > 0 {
			read.weigh(rows, n, dim, scores[p:], stride, v, next, dst, width)
		}
		for r := 1; r < rows; r++ {
			if m := min(size, common+r-p); m > n {
				read.weigh(1, m-n, dim, scores[r*stride+p+n:], stride, v[n*dim:], next, dst[r*width:], width)
			}
		}
		v = next
	}
	for r := range rows {
		j.team.ops.scale(dst[r*width:][:dim], 1/sums[r])
	}
}
