package browser

import (
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxColors keeps the screenshots small; a page has some twenty, and those at the
// edges of letters.
const maxColors = 240

// maxScreenshots bounds what the repository keeps.
const maxScreenshots = 512 << 10

// shown are the screenshots that README.md shows: one of each page in each theme.
func shown() []string {
	return []string{"paywall-light.png", "paywall-dark.png", "docs-light.png", "docs-dark.png"}
}

// TestScreenshots checks the screenshots that are committed: those that the
// README shows and no others, readable, and small together. It runs after
// the tests that take them when asked to.
func TestScreenshots(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, name := range shown() {
		file := filepath.Join("screenshots", name)
		if *updateScreenshots {
			if err := shrink(filepath.Join(pictures, name), file); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		if !strings.Contains(string(readme), "infra/browser/"+file) {
			t.Errorf("README.md does not show %s", file)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
		if err := readable(file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	t.Logf("%d bytes", total)
	if total > maxScreenshots {
		t.Errorf("%d bytes, at most %d", total, maxScreenshots)
	}
	files, err := filepath.Glob("screenshots/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(shown()) {
		t.Errorf("screenshots has %v, want %v", files, shown())
	}
}

// readable says whether a file is a picture, and of a size that a page has.
func readable(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := png.DecodeConfig(f)
	if err == nil && (c.Width < 200 || c.Height < 200) {
		err = fmt.Errorf("%d by %d pixels", c.Width, c.Height)
	}
	return err
}

func load(file string) (image.Image, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return png.Decode(f)
}

// shrink writes a picture with a palette: the colours that cover most of
// it. A page has few beside those at the edges of letters, and these take the
// nearest.
func shrink(from, file string) error {
	m, err := load(from)
	if err != nil {
		return err
	}
	out := image.NewPaletted(m.Bounds(), commonest(m))
	index := map[color.RGBA]uint8{}
	each(m, func(x, y int, c color.RGBA) {
		i, known := index[c]
		if !known {
			i = uint8(out.Palette.Index(c)) //nolint:gosec // a palette has maxColors at most
			index[c] = i
		}
		out.Pix[out.PixOffset(x, y)] = i
	})
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(f, out)
}

// each visits every pixel.
func each(m image.Image, visit func(x, y int, c color.RGBA)) {
	b := m.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := m.At(x, y).RGBA()
			visit(x, y, color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(bl >> 8), 255}) //nolint:gosec // the high bytes
		}
	}
}

// commonest are the colours that most pixels have.
func commonest(m image.Image) color.Palette {
	count := map[color.RGBA]int{}
	each(m, func(_, _ int, c color.RGBA) { count[c]++ })
	colors := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var p color.Palette
	for _, c := range colors[:min(len(colors), maxColors)] {
		p = append(p, c)
	}
	return p
}
