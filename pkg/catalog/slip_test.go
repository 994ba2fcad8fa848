package catalog

import "testing"

// One edit, and no other name, is a slip.
func TestOneEdit(t *testing.T) {
	t.Parallel()
	const name, letters = "type", "typex"
	edits := map[string]bool{name: true}
	for i := range len(name) + 1 {
		head, tail := name[:i], name[i:]
		for _, c := range letters {
			edits[head+string(c)+tail] = true
			if tail != "" {
				edits[head+string(c)+tail[1:]], edits[head+tail[1:]] = true, true
			}
		}
		if len(tail) > 1 {
			edits[head+tail[1:2]+tail[:1]+tail[2:]] = true
		}
	}
	for names, n := []string{""}, 0; n < 7; n++ {
		var longer []string
		for _, sent := range names {
			if OneEdit(sent, name) != edits[sent] {
				t.Errorf("%s is a slip: %v", sent, !edits[sent])
			}
			for _, c := range letters {
				longer = append(longer, sent+string(c))
			}
		}
		names = longer
	}
}
