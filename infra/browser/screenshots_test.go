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
	"testing"
)

// maxColors keeps the screenshots small; a page has some twenty.
const maxColors = 96

// maxScreenshots bounds what the repository keeps.
const maxScreenshots = 3 << 20

// TestScreenshots checks the screenshots that are committed: each state in
// light, in dark and at 320 px, readable, and small together. It runs after
// TestPages, which writes them when asked to.
func TestScreenshots(t *testing.T) {
	files, err := filepath.Glob("screenshots/*.png")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, file := range files {
		if *updateScreenshots {
			if err := shrink(file); err != nil {
				t.Errorf("%s: %v", file, err)
			}
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
	t.Logf("%d screenshots, %d bytes", len(files), total)
	if total > maxScreenshots {
		t.Errorf("%d bytes, at most %d", total, maxScreenshots)
	}
	for _, state := range []string{
		"connect", "wallets", "no-wallet", "connecting", "connect-refused", "wrong-chain", "switch-refused", "balance-too-low", "review",
		"signature-refused", "confirming", "in-progress", "rate-limited", "uncertain", "not-charged-yet", "owed", "connection-lost",
		"not-accepted", "bad-parameter", "answer", "nxdomain", "refund", "replay", "signed-before", "no-domain",
		"docs-top", "docs-handshake", "docs-operation",
	} {
		for _, how := range []string{"light", "dark", "320"} {
			if _, err := os.Stat(filepath.Join("screenshots", state+"-"+how+".png")); err != nil {
				t.Errorf("no screenshot: %v", err)
			}
		}
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
func shrink(file string) error {
	m, err := load(file)
	if err != nil {
		return err
	}
	if _, done := m.(*image.Paletted); done {
		return nil
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
