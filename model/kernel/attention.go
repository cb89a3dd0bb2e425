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
	scores       func(rows, n, dim int, q []float32, ldq int, keys runs[T], scale float32, s []float32, lds int)
	weigh        func(rows, n, dim int, p []float32, ldp int, v runs[T], dst []float32, ldd int)
	runs         runLists[T] // of the call under way
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
	first  []int // where each span's runs begin, in the list of its type
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
	tiles, first := 0, t.attend.first[:0]
	for i := range spans {
		s := &spans[i]
		if s.Start+s.Rows > t.context {
			panic(fmt.Sprintf("kernel: attention at position %d, context is %d", s.Start+s.Rows-1, t.context))
		}
		tiles += spanTiles(*s)
		if s.KV.BFloat16() {
			first = append(first, len(t.read16.runs.keys))
			t.read16.runs.add(s, h, &t.read16)
		} else {
			first = append(first, len(t.read.runs.keys))
			t.read.runs.add(s, h, &t.read)
		}
	}
	all := tiles * h.Heads
	pieces := max(1, all/(t.Threads()*attendUnits))
	t.attend = attend{team: t, dst: dst, qkv: qkv, heads: h, spans: spans, first: first, tiles: tiles, pieces: pieces}
	t.Run((all+pieces-1)/pieces, &t.attend)
	t.attend = attend{first: first}
	t.read.runs.reset()
	t.read16.runs.reset()
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
			j.tile(thread, i, head, n-1-tile) // the longest first
			return
		}
		tile -= n
	}
}

func (j *attend) tile(thread, span, head, tile int) {
	if j.spans[span].KV.BFloat16() {
		attendTile(j, &j.team.read16, thread, span, head, tile)
	} else {
		attendTile(j, &j.team.read, thread, span, head, tile)
	}
}

func attendTile[T element](j *attend, read *reader[T], thread, span, head, tile int) {
	s, dim, width := &j.spans[span], j.heads.Dim, j.heads.width()
	first := tile * tileRows
	rows := min(tileRows, s.Rows-first)
	q := j.qkv[(s.Source+first)*3*width+head*dim:]
	dst := j.dst[(s.Out+first)*width+head*dim:]
	stride := scoreStride(j.team.context)
	scores := j.team.scratch[thread].scores
	common := s.Start + first + 1 // positions that all rows see; row r sees r more
	block := s.KV.BlockSize()
	size, offset := runSize(block), head*dim*block

	keys := runs[T]{at: read.runs.keys[j.first[span]:], size: size, offset: offset, ld: block, ahead: dim * block}
	read.scores(rows, common+rows-1, dim, q, 3*width, keys, j.heads.Scale, scores, stride)
	var sums [tileRows]float32
	for r := range rows {
		sums[r] = j.team.ops.softmax(scores[r*stride:][:common+r])
		clear(dst[r*width:][:dim])
	}
	values := runs[T]{at: read.runs.values[j.first[span]:], size: size, offset: offset, ld: dim, ahead: dim * block}
	read.weigh(rows, common, dim, scores, stride, values, dst, width)
	for r := 1; r < rows; r++ {
		for p, n := common, 0; p < common+r; p += n {
			n = min(size-p%size, common+r-p)
			rest := runs[T]{at: values.at[p/size:], size: size, offset: offset + p%size*dim, ld: dim, ahead: dim * block}
			read.weigh(1, n, dim, scores[r*stride+p:], stride, rest, dst[r*width:], width)
		}
	}
	for r := range rows {
		j.team.ops.scale(dst[r*width:][:dim], 1/sums[r])
	}
}
