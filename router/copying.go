package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"
)

// takeSnapshot makes a copy of the replica's present state and puts it to use.
func (f *follower) takeSnapshot(ctx context.Context) (*cacheCopy, error) {
	g := f.router.registry
	resp, err := f.open(ctx, "/v1/cache/snapshot", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var s wireSnapshot
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxSnapshot)).Decode(&s); err != nil {
		return nil, fmt.Errorf("%w: snapshot: %w", errNoEvents, err)
	}
	if s.BlockSize != g.blockTokens {
		return nil, fmt.Errorf("%w: its blocks have %d tokens, this router compares blocks of %d", errNoEvents, s.BlockSize, g.blockTokens)
	}
	g.mu.Lock()
	c, err := g.blocks.open(s.Epoch, s.Model)
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c.seq = s.Seq
	if err = g.load(c, &s); err == nil && s.Digest.known && s.Digest.sum != c.digest {
		err = fmt.Errorf("%w: the snapshot's digest is %016x, its blocks' %016x", errResync, s.Digest.sum, c.digest)
	}
	if err == nil {
		err = g.follow(f.replica, c)
	}
	if err != nil {
		g.mu.Lock()
		g.retired = append(g.retired, c)
		g.mu.Unlock()
	}
	g.sweep()
	if errors.Is(err, errEvent) {
		err = fmt.Errorf("%w: snapshot: %w", errResync, err)
	}
	return c, err
}

// loadBlocks is how many blocks are entered before others may have the lock.
const loadBlocks = 256

// load enters a snapshot's blocks, in runs each of which is one path.
func (g *registry) load(c *cacheCopy, s *wireSnapshot) error {
	for _, part := range s.Salts {
		blocks := part.Blocks
		for len(blocks) > 0 {
			n := 1
			for n < min(len(blocks), loadBlocks) && blocks[n].Parent == blocks[n-1].ID {
				n++
			}
			g.mu.Lock()
			err := g.blocks.store(c, part.Salt, blocks[0].Parent, blocks[:n])
			g.mu.Unlock()
			if err != nil {
				return err
			}
			blocks = blocks[n:]
		}
	}
	return nil
}

// follow puts a complete copy to use.
func (g *registry) follow(r *replica, c *cacheCopy) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.removed {
		return errForgotten
	}
	if old := r.copy; old != nil {
		g.blocks.retire(old)
		g.retired = append(g.retired, old)
		r.resyncs++
	}
	if r.expected == nil {
		r.expected = newExpectations()
	}
	r.copy = c
	g.blocks.activate(c)
	for h := range r.expected.blocks {
		if g.blocks.holds(c, h) {
			r.expected.stored(h)
		}
	}
	return nil
}

// unfollow goes back to guessing.
func (g *registry) unfollow(r *replica) {
	g.mu.Lock()
	g.retire(r)
	g.mu.Unlock()
	g.sweep()
}

// stream applies events until they end or do not fit.
func (f *follower) stream(ctx context.Context, c *cacheCopy) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(f.router.config.EventSilence, cancel)
	defer silence.Stop()
	resp, err := f.open(ctx, "/v1/cache/events", url.Values{
		"epoch": {c.epoch}, "from": {strconv.FormatUint(c.seq, 10)},
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	events := newEventReader(resp.Body)
	for {
		e, err := events.next()
		if err != nil {
			if errors.Is(err, errEvent) {
				err = fmt.Errorf("%w: %w", errResync, err)
			}
			return err
		}
		silence.Reset(f.router.config.EventSilence)
		if err := f.router.registry.apply(f.replica, c, e); err != nil {
			return err
		}
	}
}

// apply takes in one event.
func (g *registry) apply(r *replica, c *cacheCopy, e wireEvent) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.copy != c {
		return errForgotten
	}
	next := c.seq + 1
	if e.Type == eventHeartbeat {
		next = c.seq
	}
	switch {
	case e.Type == eventResync:
		return fmt.Errorf("%w: it was asked for", errResync)
	case e.Epoch != c.epoch:
		return fmt.Errorf("%w: epoch %q, the copy is of %q", errResync, e.Epoch, c.epoch)
	case e.Seq != next:
		return fmt.Errorf("%w: event %d, expected %d", errResync, e.Seq, next)
	}
	var err error
	switch e.Type {
	case eventHeartbeat:
	case eventStored:
		err = g.blocks.store(c, e.Salt, e.Parent, e.Blocks)
		for _, w := range e.Blocks {
			if ref, found := c.ids[w.ID]; found {
				r.expected.stored(g.blocks.at(ref).hash)
			}
		}
	case eventRemoved:
		err = g.blocks.remove(c, e.Blocks)
	case eventCleared:
		g.blocks.clear(c, len(c.ids)+1)
		g.blocks.numbers.add(c.number) // it stays in use
	default:
		err = fmt.Errorf("%w: type %q", errEvent, e.Type)
	}
	if errors.Is(err, errEvent) {
		err = fmt.Errorf("%w: %w", errResync, err)
	}
	if err != nil {
		return err
	}
	c.seq = next
	if e.Digest.known && e.Digest.sum != c.digest {
		return fmt.Errorf("%w: after event %d the replica's digest is %016x, the copy's %016x", errResync, c.seq, e.Digest.sum, c.digest)
	}
	return nil
}
