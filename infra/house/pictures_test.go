package house

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// The sizes of the pictures. The card is the picture that a site shows with a link to the
// documentation. Every site that shows such cards accepts this size.
const (
	cardWidth, cardHeight = 1200, 630
	mostCard              = 40 << 10 // the largest size of the card's file, in bytes
	iconSize              = 32
)

// TestPictures checks that the served pictures match their sources: the mark in favicon.svg,
// and the name and the tagline in the catalog.
func TestPictures(t *testing.T) {
	mark := readText(t, pagesFolder+"/favicon.svg")
	icon := image.NewNRGBA(image.Rect(0, 0, iconSize, iconSize))
	drawMark(t, icon, mark, 0, 0, iconSize)
	checkPicture(t, "favicon.ico", icon, icoOf, func(file []byte) []byte { return file[icoHeader:] })

	card := image.NewNRGBA(image.Rect(0, 0, cardWidth, cardHeight))
	draw.Draw(card, card.Bounds(), image.NewUniform(color.NRGBA{0xf4, 0xf7, 0xf5, 0xff}), image.Point{}, draw.Src)
	drawMark(t, card, mark, 96, 165, 300)
	ink, soft := color.NRGBA{0x0f, 0x6a, 0x4f, 0xff}, color.NRGBA{0x2d, 0x3a, 0x35, 0xff}
	words := readText(t, root+"/pkg/catalog/catalog.go")
	drawText(t, card, gobold.TTF, 104, ink, 456, 285, constantOf(t, words, "Service"))
	first, second, _ := strings.Cut(constantOf(t, words, "Tagline"), ", ")
	drawText(t, card, goregular.TTF, 42, soft, 460, 375, first+",")
	drawText(t, card, goregular.TTF, 42, soft, 460, 433, second)
	size := checkPicture(t, "card.png", card, pngOf, func(file []byte) []byte { return file })
	if size > mostCard {
		t.Errorf("the card has %d bytes, at most %d are allowed", size, mostCard)
	}
}

// constantOf returns the value of a text constant in Go source code.
func constantOf(t *testing.T, source, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\s+` + name + `\s+= "(.*)"$`).FindStringSubmatch(source)
	if m == nil {
		t.Fatalf("no constant %s", name)
	}
	return m[1]
}

// drawMark draws the mark in a square of the given size, whose upper left corner is at x and
// y.
func drawMark(t *testing.T, to *image.NRGBA, source string, x, y, size int) {
	t.Helper()
	const fine = 4 // sampled points per pixel in each direction
	m := readMark(t, source)
	for row := range size {
		for column := range size {
			at := to.NRGBAAt(x+column, y+row)
			sum := [4]float64{}
			for i := range fine * fine {
				px := (float64(column) + (float64(i%fine)+0.5)/fine) * markSize / float64(size)
				py := (float64(row) + (float64(i/fine)+0.5)/fine) * markSize / float64(size)
				c := m.colorAt(px, py, at)
				for k, v := range [4]uint8{c.R, c.G, c.B, 0xff} {
					sum[k] += float64(v) * float64(c.A) / 0xff
				}
			}
			if sum[3] == 0 {
				continue
			}
			share := func(k int) uint8 { return uint8(sum[k]/sum[3]*0xff + 0.5) }
			to.SetNRGBA(x+column, y+row, color.NRGBA{share(0), share(1), share(2), uint8(sum[3]/(fine*fine) + 0.5)})
		}
	}
}

// markSize is the width and the height of the drawing area of favicon.svg.
const markSize = 64

// mark describes favicon.svg: a square with round corners, a line, and a dot.
type mark struct {
	round, stroke     float64
	dot               [3]float64 // x and y of the centre, and the radius
	line              [][][2]float64
	ground, ink, spot color.NRGBA
}

func readMark(t *testing.T, source string) (m mark) {
	t.Helper()
	parts := regexp.MustCompile(`^<svg .*?viewBox="0 0 64 64".*?><rect width="64" height="64" rx="(\d+)" fill="#(\w{6})"/>` +
		`<path d="([^"]+)" fill="none" stroke="#fff" stroke-width="(\d+)" stroke-linecap="round" stroke-linejoin="round"/>` +
		`<circle cx="(\d+)" cy="(\d+)" r="(\d+)" fill="#(\w{6})"/></svg>`).FindStringSubmatch(source)
	if parts == nil {
		t.Fatal("favicon.svg is made of something else: draw that")
	}
	m.round, m.stroke = parseNumber(t, parts[1]), parseNumber(t, parts[4])
	m.dot = [3]float64{parseNumber(t, parts[5]), parseNumber(t, parts[6]), parseNumber(t, parts[7])}
	m.ground, m.ink, m.spot = colorOf(t, parts[2]), color.NRGBA{0xff, 0xff, 0xff, 0xff}, colorOf(t, parts[8])
	m.line = lineOf(t, parts[3])
	return m
}

// colorAt returns the colour of a point of the mark. For a point outside the mark, it returns
// the colour of the background.
func (m mark) colorAt(x, y float64, behind color.NRGBA) color.NRGBA {
	corner := func(v float64) float64 { return max(m.round-v, v-(markSize-m.round), 0) }
	switch {
	case math.Hypot(x-m.dot[0], y-m.dot[1]) <= m.dot[2]:
		return m.spot
	case m.isOnLine(x, y):
		return m.ink
	case math.Hypot(corner(x), corner(y)) <= m.round:
		return m.ground
	}
	return behind
}

// isOnLine reports whether a point is covered by the line, whose ends and corners are round.
func (m mark) isOnLine(x, y float64) bool {
	for _, points := range m.line {
		for i := range len(points) - 1 {
			a, b := points[i], points[i+1]
			dx, dy := b[0]-a[0], b[1]-a[1]
			along := ((x-a[0])*dx + (y-a[1])*dy) / (dx*dx + dy*dy)
			along = min(max(along, 0), 1)
			if math.Hypot(x-a[0]-along*dx, y-a[1]-along*dy) <= m.stroke/2 {
				return true
			}
		}
	}
	return false
}

// lineOf returns the points of an SVG path. It supports the commands that the mark uses.
func lineOf(t *testing.T, path string) (lines [][][2]float64) {
	t.Helper()
	var at, before [2]float64 // the current point, and the last control point
	for _, c := range regexp.MustCompile(`([A-Za-z])([^A-Za-z]*)`).FindAllStringSubmatch(path, -1) {
		var n []float64
		for _, text := range regexp.MustCompile(`-?[0-9.]+`).FindAllString(c[2], -1) {
			n = append(n, parseNumber(t, text))
		}
		plus := func(i int) [2]float64 { return [2]float64{at[0] + n[i], at[1] + n[i+1]} }
		last := len(lines) - 1
		switch c[1] {
		case "M":
			at = [2]float64{n[0], n[1]}
			lines = append(lines, [][2]float64{at})
		case "v":
			at[1] += n[0]
			lines[last] = append(lines[last], at)
		case "c":
			lines[last] = append(lines[last], curve(at, plus(0), plus(2), plus(4))...)
			before, at = plus(2), plus(4)
		case "s":
			mirrored := [2]float64{2*at[0] - before[0], 2*at[1] - before[1]}
			lines[last] = append(lines[last], curve(at, mirrored, plus(0), plus(2))...)
			before, at = plus(0), plus(2)
		default:
			t.Fatalf("the path has %q: draw that", c[1])
		}
	}
	return lines
}

// curve returns points on the cubic Bézier curve with the control points a, b, c and d. The
// result includes the end of the curve (d), but not its beginning (a).
func curve(a, b, c, d [2]float64) (points [][2]float64) {
	const pieces = 24
	for i := range pieces {
		u := float64(i+1) / pieces
		v := 1 - u
		var p [2]float64
		for k := range p {
			p[k] = v*v*v*a[k] + 3*v*v*u*b[k] + 3*v*u*u*c[k] + u*u*u*d[k]
		}
		points = append(points, p)
	}
	return points
}

func parseNumber(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func colorOf(t *testing.T, hex string) color.NRGBA {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	return color.NRGBA{uint8(n >> 16), uint8(n >> 8), uint8(n), 0xff}
}

func drawText(t *testing.T, to draw.Image, ttf []byte, size float64, ink color.Color, x, y int, text string) {
	t.Helper()
	parsed, err := opentype.Parse(ttf)
	if err != nil {
		t.Fatal(err)
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		t.Fatal(err)
	}
	d := font.Drawer{Dst: to, Src: image.NewUniform(ink), Face: face, Dot: fixed.P(x, y)}
	if d.DrawString(text); d.Dot.X.Ceil() > to.Bounds().Dx()-x/6 {
		t.Errorf("%q ends at %d, of %d", text, d.Dot.X.Ceil(), to.Bounds().Dx())
	}
}

// checkPicture checks that an embedded picture looks like the drawn one, and returns the size
// of its file. If the two differ and -update is set, it writes the picture. It does not
// compare bytes, because compressors write different bytes for the same picture, and
// processors round numbers differently in the last bit.
func checkPicture(t *testing.T, name string, want *image.NRGBA, encode func(*testing.T, image.Image) []byte, inside func([]byte) []byte) int {
	t.Helper()
	file := filepath.Join(pagesFolder, "generated", name)
	kept, err := os.ReadFile(file)
	if err == nil && showsPicture(inside(kept), want) {
		return len(kept)
	}
	if !*update {
		t.Fatalf("%s is not what is drawn, which make update writes: %v", file, err)
	}
	kept = encode(t, want)
	if err := os.WriteFile(file, kept, 0o644); err != nil {
		t.Fatal(err)
	}
	return len(kept)
}

// showsPicture reports whether a PNG file shows the wanted picture, with at most small
// differences in colour.
func showsPicture(file []byte, want *image.NRGBA) bool {
	got, err := png.Decode(bytes.NewReader(file))
	if err != nil || got.Bounds() != want.Bounds() {
		return false
	}
	for y := range want.Bounds().Dy() {
		for x := range want.Bounds().Dx() {
			a, _ := color.NRGBAModel.Convert(got.At(x, y)).(color.NRGBA)
			if b := want.NRGBAAt(x, y); differ(a.R, b.R) || differ(a.G, b.G) || differ(a.B, b.B) || differ(a.A, b.A) {
				return false
			}
		}
	}
	return true
}

// differ reports whether two values of a colour channel differ visibly.
func differ(a, b uint8) bool { return max(a, b)-min(a, b) > 8 }

func pngOf(t *testing.T, picture image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, picture); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// icoHeader is the number of bytes before the only picture of an ICO file.
const icoHeader = 6 + 16

// icoOf returns an ICO file with one picture, a PNG. All current browsers can read it.
func icoOf(t *testing.T, picture image.Image) []byte {
	t.Helper()
	file := pngOf(t, picture)
	size := uint8(picture.Bounds().Dx())
	var b bytes.Buffer
	for _, part := range []any{
		[3]uint16{0, 1, 1},                      // an icon, one picture
		[4]uint8{size, size},                    // without a palette
		[2]uint16{1, 32},                        // colour planes, bits per pixel
		[2]uint32{uint32(len(file)), icoHeader}, // length and offset of the picture
		file,
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
