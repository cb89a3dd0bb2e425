package workload

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// mooncakeBlock is how many tokens a hash of a Mooncake trace stands for.
const mooncakeBlock = 512

// Mooncake reads a trace as published with Mooncake (Qin et al., FAST 2025), a request a line:
//
//	{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
//
// with the time in milliseconds, never going back, and an id for every 512 tokens of the
// prompt, the last of which may be fewer. Equal ids are equal tokens after an equal beginning.
//
// Lengths are scaled from 512 tokens a block to ScaleBlocks, rounded up. A prompt is cut
// to what the context leaves beside MaxOutput, whatever its own answer's length, so that
// how much two prompts share does not hang on their answers. Each id spells the same tokens
// everywhere. Different ids differ within their first tokens, in the first one already
// unless they are a multiple of the number of usable token ids apart: the conversation
// trace has 7,373 different second blocks, more than a vocabulary of 4096 can keep apart at
// once. So a request may find one token more than the hashes say.
//
// name is the file's, for errors.
func Mooncake(r io.Reader, name string, cfg TraceConfig) (*Workload, error) {
	return cfg.read(FormatMooncake, readerRows(r, name), name)
}

func (c TraceConfig) mooncake(in *rows, out *earliest, w *Workload) error {
	w.Timed = true
	w.Parameters = append(w.Parameters, Parameter{"scale_blocks", strconv.Itoa(c.ScaleBlocks)})
	last := int64(0)
	for !out.full() {
		row, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at, err := row.instant("timestamp", time.Millisecond)
		if err != nil {
			return err
		}
		if at < last {
			return row.fail("timestamp", "is %s, earlier than the row before", row.fields["timestamp"])
		}
		last = at
		request, err := c.mooncakeRequest(row)
		if err != nil {
			return err
		}
		out.add(at, request)
	}
	return nil
}

func (c TraceConfig) mooncakeRequest(row row) (Request, error) {
	input, err := row.number("input_length", 1)
	if err != nil {
		return Request{}, err
	}
	output, err := row.number("output_length", 0)
	if err != nil {
		return Request{}, err
	}
	var ids []*int64 // pointers tell null from 0
	if err := row.decode("hash_ids", &ids); err != nil {
		return Request{}, err
	}
	if blocks := blocksFor(input, mooncakeBlock); len(ids) != blocks {
		return Request{}, row.fail("hash_ids", "has %d ids, want %d for input_length %d", len(ids), blocks, input)
	}
	length := min(c.scale(input), c.Target.Context-c.MaxOutput)
	tokens := make([]int32, 0, length+c.ScaleBlocks)
	for i, id := range ids {
		if id == nil || *id < 0 {
			return Request{}, row.fail("hash_ids", "[%d] is not a number from 0 on", i)
		}
		if len(tokens) < length {
			if tokens, err = c.spell(tokens, *id); err != nil {
				return Request{}, row.fail("hash_ids", "[%d] is %d: %w", i, *id, err)
			}
		}
	}
	return Request{Tokens: tokens[:length], MaxTokens: max(1, min(c.scale(output), c.MaxOutput))}, nil
}

// scale returns a length in blocks of ScaleBlocks.
func (c TraceConfig) scale(length int) int {
	return (length*c.ScaleBlocks + mooncakeBlock - 1) / mooncakeBlock
}

var errTooFewTokens = errors.New("a block has too few tokens to spell it")

// spell appends a block: the id as a number whose digits are tokens, the lowest first, as
// many for each id, and after that the id's own random tokens.
func (c TraceConfig) spell(tokens []int32, id int64) ([]int32, error) {
	s := speller{target: c.Target, draw: rand.New(rand.NewPCG(c.Seed, uint64(id)))}
	base := int64(c.Target.ids())
	digits := 0
	for rest := int64(math.MaxInt64); rest > 0; rest /= base {
		digits++
	}
	rest := id
	for i := range c.ScaleBlocks {
		if i < digits {
			tokens = append(tokens, s.id(int(rest%base)))
			rest /= base
		} else {
			tokens = append(tokens, s.id(s.draw.IntN(int(base))))
		}
	}
	if rest > 0 {
		return nil, errTooFewTokens
	}
	return tokens, nil
}
