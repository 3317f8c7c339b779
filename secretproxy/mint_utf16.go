package secretproxy

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// wideObject reports whether r begins as a JSON object in UTF-16, whether or not its server says so: decoders read it,
// and no token is found in it. It returns r from its beginning. Of what is no such object it waits for as few bytes as
// beginsObject does, or for one more.
func wideObject(r io.Reader) (io.Reader, bool) {
	source := bufio.NewReader(r)
	low, at := -1, 0 // the byte of each pair that holds the character, once that is known
	for {
		if first, err := source.Peek(at + 1); errors.Is(err, bufio.ErrBufferFull) {
			return source, true // 4 KiB of blanks in UTF-16
		} else if err != nil || strings.IndexByte("\x00\xfe\xff \t\r\n{", first[at]) < 0 {
			return source, false
		}
		pair, err := source.Peek(at + 2)
		if err != nil {
			return source, false
		}
		pair, at = pair[at:], at+2
		switch {
		case low < 0 && pair[0] == 0xfe && pair[1] == 0xff, low < 0 && pair[0] == 0:
			low = 1
		case low < 0 && pair[0] == 0xff && pair[1] == 0xfe, low < 0 && pair[1] == 0:
			low = 0
		}
		switch {
		case low < 0 || pair[1-low] != 0 && at > 2:
			return source, false
		case pair[1-low] != 0: // the mark
		case pair[low] == '{':
			return source, true
		case strings.IndexByte(" \t\r\n", pair[low]) < 0:
			return source, false
		}
	}
}
