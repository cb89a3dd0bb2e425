package kernel

import "fmt"

// KV gives access to the keys and values of one sequence, stored in blocks of
// BlockSize positions: keys [heads][dim][BlockSize], values [heads][BlockSize][dim].
// Threads call it at the same time.
type KV interface {
	BlockSize() int
	Keys(layer, block int) []float32
	Values(layer, block int) []float32
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
	ops, dim, width := j.team.ops, j.heads.Dim, j.heads.width()
	first := tile * tileRows
	rows := min(tileRows, s.Rows-first)
	q := j.qkv[(s.Source+first)*3*width+head*dim:]
	dst := j.dst[(s.Out+first)*width+head*dim:]
	stride := scoreStride(j.team.context)
	scores := j.team.scratch[thread].scores
	common := s.Start + first + 1 // positions that all rows see; row r sees r more
	all := common + rows - 1
	size := s.KV.BlockSize()

	keys := j.keys(s, head, 0)
	for b, p := 0, 0; p < all; b, p = b+1, p+size {
		var next []float32
		if p+size < all {
			next = j.keys(s, head, b+1)
		} else {
			next = j.values(s, head, 0)
		}
		ops.scores(rows, min(size, all-p), dim, q, 3*width, keys, next, size, j.heads.Scale, scores[p:], stride)
		keys = next
	}
	var sums [tileRows]float32
	for r := range rows {
		sums[r] = ops.softmax(scores[r*stride:][:common+r])
		clear(dst[r*width:][:dim])
	}
	v := j.values(s, head, 0)
	for b, p := 0, 0; p < all; b, p = b+1, p+size {
		next := v
		if p+size < all {
			next = j.values(s, head, b+1)
		}
		n := max(0, min(size, common-p))
		if n > 0 {
			ops.values(rows, n, dim, scores[p:], stride, v, next, dst, width)
		}
		for r := 1; r < rows; r++ {
			if m := min(size, common+r-p); m > n {
				ops.values(1, m-n, dim, scores[r*stride+p+n:], stride, v[n*dim:], next, dst[r*width:], width)
			}
		}
		v = next
	}
	for r := range rows {
		ops.scale(dst[r*width:][:dim], 1/sums[r])
	}
}

// keys is one head's keys of a block, [dim][BlockSize].
func (j *attend) keys(s *Span, head, block int) []float32 {
	n := j.heads.Dim * s.KV.BlockSize()
	return s.KV.Keys(j.heads.Layer, block)[head*n:][:n]
}

// values is one head's values of a block, [BlockSize][dim].
func (j *attend) values(s *Span, head, block int) []float32 {
	n := j.heads.Dim * s.KV.BlockSize()
	return s.KV.Values(j.heads.Layer, block)[head*n:][:n]
}

// store is one layer's new keys and values on their way into their blocks; a unit is
// one head of one span.
type store struct {
	qkv   []float32
	heads Heads
	spans []Span
}

// Store writes the keys and values of every row of every span, qkv[Source+i] from
// heads*dim on, to their blocks at positions Start+i.
func (t *Team) Store(qkv []float32, spans []Span, h Heads) {
	t.store = store{qkv: qkv, heads: h, spans: spans}
	rows := 0
	for i := range spans {
		rows += spans[i].Rows
	}
	// A float of a key goes to a cache line of its own, so it counts several times.
	if units := len(spans) * h.Heads; 4*rows*h.width() < inlineWork {
		for u := range units {
			t.store.Unit(0, u)
		}
	} else {
		t.Run(units, &t.store)
	}
	t.store = store{}
}

// Unit stores one head of one span.
func (j *store) Unit(_, unit int) {
	s, head := &j.spans[unit/j.heads.Heads], unit%j.heads.Heads
	dim, width, size := j.heads.Dim, j.heads.width(), s.KV.BlockSize()
	for r := 0; r < s.Rows; {
		b, t := (s.Start+r)/size, (s.Start+r)%size
		n := min(size-t, s.Rows-r)
		keys := s.KV.Keys(j.heads.Layer, b)[head*dim*size:][:dim*size]
		values := s.KV.Values(j.heads.Layer, b)[head*dim*size:][:dim*size]
		for i := range n {
			row := j.qkv[(s.Source+r+i)*3*width+head*dim:]
			for d, k := range row[width:][:dim] {
				keys[d*size+t+i] = k
			}
			copy(values[(t+i)*dim:][:dim], row[2*width:])
		}
		r += n
	}
}
