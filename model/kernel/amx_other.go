//go:build amd64 && !linux && !purego

package kernel

import "errors"

// permitTiles is not known for this system.
func permitTiles() error { return errors.New("AMX tiles are used on Linux only") }
