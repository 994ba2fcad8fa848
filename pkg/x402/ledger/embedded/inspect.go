package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// bbolt's file, in the byte order of the machine: pages of one size, each with
//
//	id (8 bytes) | flags (2) | count (2) | overflow (4) | contents
//
// where overflow is how many further pages the contents take. Pages 0 and 1 are
// two versions of the meta page. bbolt trusts all of it, and its own check of a
// file (Tx.Check) does: it follows lengths out of the mapped memory and
// references around in circles, neither of which a process survives.
const (
	pageHeader = 16
	flagBranch = 0x01
	flagLeaf   = 0x02
	flagFree   = 0x10

	metaLen     = 64
	metaSummed  = 56 // FNV-1a, 64 bits, of what stands before the checksum
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	noFreelist  = ^uint64(0)

	elementLen   = 16 // of leaf and of branch pages
	flagBucket   = 0x01
	bucketHeader = 16 // root page, or 0 and the page follows; sequence
	longList     = 0xFFFF
)

// pages are those of a file, and which of them were met.
type pages struct {
	file io.ReaderAt
	size int64  // of one
	end  uint64 // no page is used from here on
	used []bool
}

// page is one page with what flows over.
type page struct {
	id    uint64
	flags uint16
	count int
	bytes []byte
}

// meta is what is read of a meta page.
type meta struct{ root, freelist, end, tx uint64 }

// inspect says whether bbolt can be trusted with a file: every page that it
// can reach is where it says, is reached once, is not free, and keeps its keys
// in order. Values are not looked at; a row has its checksum.
func inspect(file io.ReaderAt, size, pageSize int64) error {
	m, err := newest(file, pageSize)
	if err != nil {
		return err
	}
	if m.end < 2 || m.end > uint64(size/pageSize) {
		return fmt.Errorf("it has %d bytes, its contents take %d pages of %d", size, m.end, pageSize)
	}
	c := &pages{file: file, size: pageSize, end: m.end, used: make([]bool, m.end)}
	c.used[0], c.used[1] = true, true
	free, err := c.freelist(m.freelist)
	if err != nil {
		return err
	}
	if err := c.tree(m.root, nil, nil); err != nil {
		return err
	}
	for _, id := range free {
		if id >= c.end || c.used[id] {
			return fmt.Errorf("page %d is listed as free and is not, or twice", id)
		}
		c.used[id] = true
	}
	return nil
}

// newest is the meta page that bbolt goes by: the last one that was written
// whole.
func newest(file io.ReaderAt, pageSize int64) (meta, error) {
	var best *meta
	for n := range int64(2) {
		var b [pageHeader + metaLen]byte
		if _, err := file.ReadAt(b[:], n*pageSize); err != nil {
			return meta{}, fmt.Errorf("read page %d: %w", n, err)
		}
		if m := parseMeta(b[pageHeader:]); m != nil && (best == nil || m.tx > best.tx) {
			best = m
		}
	}
	if best == nil {
		return meta{}, errors.New("it has no valid meta page")
	}
	return *best, nil
}

func parseMeta(b []byte) *meta {
	order := binary.NativeEndian
	sum := fnv.New64a()
	sum.Write(b[:metaSummed])
	if order.Uint32(b) != metaMagic || order.Uint32(b[4:]) != metaVersion || order.Uint64(b[metaSummed:]) != sum.Sum64() {
		return nil
	}
	return &meta{root: order.Uint64(b[16:]), freelist: order.Uint64(b[32:]), end: order.Uint64(b[40:]), tx: order.Uint64(b[48:])}
}

// load reads a page that nobody else may refer to.
func (c *pages) load(id uint64) (page, error) {
	if id >= c.end {
		return page{}, fmt.Errorf("page %d is referred to, there are %d", id, c.end)
	}
	at := int64(id) * c.size
	var h [pageHeader]byte
	if _, err := c.file.ReadAt(h[:], at); err != nil {
		return page{}, fmt.Errorf("read page %d: %w", id, err)
	}
	order := binary.NativeEndian
	if says := order.Uint64(h[:]); says != id {
		return page{}, fmt.Errorf("page %d says that it is page %d", id, says)
	}
	n := uint64(order.Uint32(h[12:])) + 1
	if n > c.end-id {
		return page{}, fmt.Errorf("page %d flows over the end", id)
	}
	for i := id; i < id+n; i++ {
		if c.used[i] {
			return page{}, fmt.Errorf("page %d is used twice", i)
		}
		c.used[i] = true
	}
	p := page{id: id, flags: order.Uint16(h[8:]), count: int(order.Uint16(h[10:])), bytes: make([]byte, int64(n)*c.size)}
	if _, err := c.file.ReadAt(p.bytes, at); err != nil {
		return page{}, fmt.Errorf("read page %d: %w", id, err)
	}
	return p, nil
}

// freelist reads the numbers of the pages that are free.
func (c *pages) freelist(id uint64) ([]uint64, error) {
	if id == noFreelist {
		return nil, nil // bbolt makes one
	}
	p, err := c.load(id)
	if err != nil {
		return nil, err
	}
	if p.flags != flagFree {
		return nil, fmt.Errorf("page %d is not the list of free pages", id)
	}
	order := binary.NativeEndian
	list, n := p.bytes[pageHeader:], uint64(p.count)
	if n == longList && len(list) >= 8 {
		list, n = list[8:], order.Uint64(list)
	}
	if n > uint64(len(list)/8) {
		return nil, fmt.Errorf("page %d, the list of free pages, is longer than it can be", id)
	}
	free := make([]uint64, n)
	for i := range free {
		free[i] = order.Uint64(list[8*i:])
	}
	return free, nil
}

// tree walks a page and what is below it; its keys are from least on and below
// most, nil being no limit.
func (c *pages) tree(id uint64, least, most []byte) error {
	p, err := c.load(id)
	if err != nil {
		return err
	}
	return c.walk(p, least, most)
}

func (c *pages) walk(p page, least, most []byte) error {
	elements, err := p.elements()
	if err != nil {
		return err
	}
	for i, e := range elements {
		late := i > 0 && bytes.Compare(e.key, elements[i-1].key) <= 0
		if len(e.key) == 0 || late || bytes.Compare(e.key, least) < 0 || most != nil && bytes.Compare(e.key, most) >= 0 {
			return fmt.Errorf("page %d has a key out of order", p.id)
		}
	}
	for i, e := range elements {
		if p.flags == flagBranch {
			below := most
			if i+1 < len(elements) {
				below = elements[i+1].key
			}
			err = c.tree(e.child, e.key, below)
		} else if e.bucket {
			err = c.bucket(p.id, e.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket walks the pages of a bucket. A small one has its only page in place.
func (c *pages) bucket(in uint64, value []byte) error {
	if len(value) < bucketHeader {
		return fmt.Errorf("page %d has a bucket that is cut short", in)
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return c.tree(root, nil, nil)
	}
	b := value[bucketHeader:]
	if len(b) < pageHeader {
		return fmt.Errorf("page %d has a bucket that is cut short", in)
	}
	order := binary.NativeEndian
	p := page{id: in, flags: order.Uint16(b[8:]), count: int(order.Uint16(b[10:])), bytes: b}
	if p.flags != flagLeaf {
		return fmt.Errorf("page %d has a bucket without a leaf", in)
	}
	return c.walk(p, nil, nil)
}

// element is one entry of a page.
type element struct {
	key, value []byte // no value in a branch
	child      uint64 // of a branch
	bucket     bool   // value is a bucket
}

// elements reads the entries of a leaf or branch page.
func (p page) elements() ([]element, error) {
	branch := p.flags == flagBranch
	switch {
	case !branch && p.flags != flagLeaf:
		return nil, fmt.Errorf("page %d is neither leaf nor branch", p.id)
	case branch && p.count == 0, pageHeader+p.count*elementLen > len(p.bytes):
		return nil, fmt.Errorf("page %d cannot have %d entries", p.id, p.count)
	}
	order := binary.NativeEndian
	list := make([]element, p.count)
	for i := range list {
		at := p.bytes[pageHeader+i*elementLen:] // positions count from here
		e := &list[i]
		var pos, key, value uint64
		if branch {
			pos, key, e.child = uint64(order.Uint32(at)), uint64(order.Uint32(at[4:])), order.Uint64(at[8:])
		} else {
			e.bucket = order.Uint32(at)&flagBucket != 0
			pos, key, value = uint64(order.Uint32(at[4:])), uint64(order.Uint32(at[8:])), uint64(order.Uint32(at[12:]))
		}
		if pos+key+value > uint64(len(at)) {
			return nil, fmt.Errorf("page %d has an entry that ends outside", p.id)
		}
		e.key, e.value = at[pos:pos+key], at[pos+key:pos+key+value]
	}
	return list, nil
}
