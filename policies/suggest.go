package policies

import (
	"slices"
	"strings"
)

// maxSuggestDistance is how many letters may be wrong for a suggestion to help
// rather than puzzle.
const maxSuggestDistance = 2

// maxSuggestWord is longer than every key and preset; past it a slip isn't the
// reason, and comparing costs time.
const maxSuggestWord = 64

// Closest returns the known word that word is most likely a slip of, or "".
func Closest(word string, known []string) string {
	if len(word) > maxSuggestWord {
		return ""
	}
	word = strings.ToLower(strings.ReplaceAll(word, "-", "_"))
	best, bestDistance := "", maxSuggestDistance+1
	for _, k := range known {
		plain := strings.ReplaceAll(k, "-", "_")
		d := editDistance(word, plain)
		if len(word) >= 3 && (strings.HasPrefix(plain, word) || strings.HasPrefix(word, plain)) {
			d = min(d, 1) // "proto" for "protocol", "host" for "hosts"
		}
		if sortedBytes(word) == sortedBytes(plain) {
			d = min(d, 1) // "qmeu" for "qemu"
		}
		// In short words two wrong letters make any word of any other.
		if d < bestDistance && d < max(2, len(plain)/2) {
			best, bestDistance = k, d
		}
	}
	return best
}

func sortedBytes(s string) string {
	b := []byte(s)
	slices.Sort(b)
	return string(b)
}

// editDistance is the Levenshtein distance in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
