package rootfs

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrHostile means that a layer holds an entry that no sound image has.
var ErrHostile = errors.New("layer refused")

// ErrLimit means that layers are over a limit of the Budget.
var ErrLimit = errors.New("image is over a limit")

// hostile names the entry; quoted, since names may hold terminal escapes.
func hostile(name, format string, args ...any) error {
	return fmt.Errorf("%w: entry %s: %s", ErrHostile, quoteName(name), fmt.Sprintf(format, args...))
}

// maxQuotedName keeps an error readable when the offence is the name's length. Bytes.
const maxQuotedName = 200

func quoteName(name string) string {
	if len(name) > maxQuotedName {
		return strconv.Quote(name[:maxQuotedName]) + "… (" + strconv.Itoa(len(name)) + " bytes)"
	}
	return strconv.Quote(name)
}
