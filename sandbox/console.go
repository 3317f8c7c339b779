package sandbox

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/msb-project/msb/internal/rotate"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Console is the log of the guest's console, of its last run.
func (h *Home) Console(name string) ([]byte, error) {
	if _, err := loadStored(h, name); err != nil {
		return nil, Fail(err)
	}
	var all []byte // two files of bounded size
	for i := 1; i >= 0; i-- {
		b, err := state.ReadOwn(rotate.Name(namedPath(h, name, state.ConsoleLog), i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, Fail(fmt.Errorf("%w: the console's log: %w", ErrState, err))
		}
		all = append(all, b...)
	}
	return all, nil
}
