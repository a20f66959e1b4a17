package policyfile

import "strings"

// closest returns the known word that a misspelt one most likely stands for,
// or "".
func closest(word string, known []string) string {
	if len(word) > 64 {
		return ""
	}
	word = strings.ReplaceAll(strings.ToLower(word), "-", "_")
	best, least := "", 1+max(1, len(word)/3)
	for _, k := range known {
		if len(word) > 2 && (strings.HasPrefix(k, word) || strings.HasPrefix(word, k)) {
			return k
		}
		if n := distance(word, strings.ReplaceAll(k, "-", "_")); n < least {
			best, least = k, n
		}
	}
	return best
}

// distance counts the single bytes to insert, drop, change or swap with their
// neighbour on the way from a to b (optimal string alignment).
func distance(a, b string) int {
	var older []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, last = last, row
	}
	return last[len(b)]
}
