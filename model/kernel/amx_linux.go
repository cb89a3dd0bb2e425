//go:build amd64 && !purego

package kernel

import (
	"fmt"
	"syscall"
)

// permitTiles asks Linux for the use of AMX tiles in this process, as it wants once before
// the first; asking again changes nothing. Linux before 5.16 does not know the question, and
// refuses it where it does not save tiles itself.
func permitTiles() error {
	const archReqXCompPerm, xfeatureXTileData = 0x1023, 18
	if _, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archReqXCompPerm, xfeatureXTileData, 0); errno != 0 {
		return fmt.Errorf("the system does not permit AMX tiles: %w", errno)
	}
	return nil
}
