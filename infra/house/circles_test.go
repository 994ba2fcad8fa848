package house

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// knownCircles returns the circles of folders that are tolerated. Remove a circle from the list
// when you resolve it, and never add one.
func knownCircles() []string {
	return nil
}

// folderCircles returns the circles of folders, each as the names of its folders. Two folders
// are in a circle if each imports the other, directly or through more folders. Go forbids
// circles of packages, but not of folders. A folder includes everything below it, so only
// folders with the same parent are compared.
func folderCircles(imports map[string][]string) []string {
	beside := map[string][]string{} // folder -> the folders with the same parent that it imports
	for from, imported := range imports {
		for _, to := range imported {
			a, b, ok := siblingsAbove(from, to)
			if ok {
				beside[a] = append(beside[a], b)
			}
		}
	}
	reached := map[string]map[string]bool{}
	for folder := range beside {
		reached[folder] = map[string]bool{}
		addReached(beside, folder, reached[folder])
	}
	circles := map[string]bool{}
	for folder, others := range reached {
		var circle []string
		for other := range others {
			if reached[other][folder] {
				circle = append(circle, other)
			}
		}
		if len(circle) > 0 {
			slices.Sort(circle)
			circles[strings.Join(circle, " ")] = true
		}
	}
	return slices.Sorted(maps.Keys(circles))
}

// siblingsAbove returns the folder x that contains a and the folder y that contains b, where x
// and y are different and have the same parent. If one of a and b contains the other, there are
// no such folders, and ok is false.
func siblingsAbove(a, b string) (x, y string, ok bool) {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return path.Join(as[:i+1]...), path.Join(bs[:i+1]...), true
		}
	}
	return "", "", false
}

// addReached adds to the set reached all folders that the folder from imports, directly or
// through other folders.
func addReached(edges map[string][]string, from string, reached map[string]bool) {
	for _, to := range edges[from] {
		if !reached[to] {
			reached[to] = true
			addReached(edges, to, reached)
		}
	}
}

func TestFolderCircles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		imports map[string][]string
		want    []string
	}{
		"one way":                   {map[string][]string{"a/x": {"b"}, "a/y": {"b", "a/x"}, "b": {"c"}}, nil},
		"two packages, two folders": {map[string][]string{"a/x": {"b/x"}, "b/y": {"a/y"}}, []string{"a b"}},
		"three":                     {map[string][]string{"a": {"b"}, "b": {"c/d"}, "c": {"a"}, "d": {"a"}}, []string{"a b c"}},
		"below":                     {map[string][]string{"a/b/x": {"a/c"}, "a/c/x": {"a/b/y/z"}}, []string{"a/b a/c"}},
		"a folder and one below it": {map[string][]string{"a": {"a/b"}, "a/c": {"a"}, "a/b": nil}, nil},
		"two circles":               {map[string][]string{"a": {"b", "c"}, "b": {"a"}, "c": {"d"}, "d": {"c"}}, []string{"a b", "c d"}},
	} {
		if got := folderCircles(c.imports); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
