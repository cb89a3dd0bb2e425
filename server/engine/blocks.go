package engine

import (
	"context"
	"errors"

	"tailor/server/blocklog"
)

// BlockLog is what has happened to the prefix cache lately. It tells of all salts: it is
// the operator's.
func (e *Engine) BlockLog() *blocklog.Log { return e.blockLog }

// BlockSnapshot is all that the prefix cache holds, as of now but for the step that is
// being computed: the operator's too. The step loop stands still while it is copied, for
// some 70 ns a block.
func (e *Engine) BlockSnapshot(ctx context.Context) (blocklog.Snapshot, error) {
	answer := make(chan blocklog.Snapshot, 1) // not a variable: ctx may end first
	err := e.onLoop(ctx, func(s *scheduler) error {
		answer <- e.blockLog.Snapshot(s.kv)
		return nil
	})
	if err != nil {
		return blocklog.Snapshot{}, err
	}
	return <-answer, nil
}

// checkCache proves the cache's invariants, and that the log says of it what is true.
func (e *Engine) checkCache() error {
	return errors.Join(e.kv.Check(), e.blockLog.Check(e.kv))
}
