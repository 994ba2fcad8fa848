package clients

import (
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// maxScreenshots bounds what the repository keeps.
const maxScreenshots = 512 << 10

// checkScreenshots checks the screenshots that are committed: those that README.md
// shows, one of each page in each theme, and no others; readable, and small together. It
// runs after the visits, which take them when asked to.
func checkScreenshots(t *testing.T) {
	root := testbed.Root(t)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	total, shown := int64(0), []string{}
	for _, name := range []string{"docs-dark.png", "docs-light.png", "paywall-dark.png", "paywall-light.png"} {
		path := filepath.Join("screenshots", name)
		if *updateScreenshots {
			if err := shrink(filepath.Join(root, pictures, name), path); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c, err := png.DecodeConfig(f)
		if err != nil || c.Width < 200 || c.Height < 200 || !strings.Contains(string(readme), "infra/clients/"+path) {
			t.Errorf("%s: %d by %d pixels, or README.md does not show it: %v", path, c.Width, c.Height, err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		total, shown = total+info.Size(), append(shown, path)
	}
	if files, err := filepath.Glob("screenshots/*"); err != nil || !slices.Equal(files, shown) || total > maxScreenshots {
		t.Errorf("%v of %d bytes, want %v of at most %d: %v", files, total, shown, maxScreenshots, err)
	}
}

// maxColors keeps the screenshots small; a page has some twenty, and those at the edges
// of letters, which take the nearest.
const maxColors = 240

// shrink writes a picture with a palette: the colours that most of its pixels have.
func shrink(from, file string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	m, err := png.Decode(in)
	if err != nil {
		return err
	}
	count := map[color.Color]int{}
	for y := range m.Bounds().Dy() {
		for x := range m.Bounds().Dx() {
			count[m.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	out := image.NewPaletted(m.Bounds(), colors[:min(len(colors), maxColors)])
	draw.Draw(out, m.Bounds(), m, m.Bounds().Min, draw.Src)
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(f, out)
}
