package image

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// runHelper is this test binary as another process: it resolves one reference
// with one store and says what came of it.
func runHelper(ref string) int {
	if full, ok := strings.CutPrefix(ref, "full:"); ok {
		if err := fullDisk(os.Getenv("MSB_IMAGE_TEST_STORE"), full); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	s, err := Open(os.Getenv("MSB_IMAGE_TEST_STORE"), StoreOptions{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	img, err := s.Resolve(contextBackground(), ref, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(img.Digest, img.Cached)
	return 0
}

// contextBackground is for a process that has no test to belong to.
func contextBackground() context.Context { return context.Background() }
