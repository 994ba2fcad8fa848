// Package modproxy packs the module in a folder into files that the go command accepts as a
// module proxy. With them a test can do what a user without a clone does: run go get, or go run
// at a version.
package modproxy

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// Packed is a module in a proxy, at one version.
type Packed struct {
	Module  module.Version
	Modules string // the module cache of this machine
	folder  string // the proxy's folder
}

// Pack packs a module into a proxy, whose files it puts into folder. The module is in the
// folder root, and path is its module path. Pack takes the files that git tracks, and new
// files that git does not ignore. The version is different each time, because the go command
// caches a version that it has seen.
func Pack(folder, root, path string) (Packed, error) {
	when := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := module.Version{Path: path, Version: module.PseudoVersion("v0", "", when, strings.ToLower(rand.Text())[:12])}
	escaped, err := module.EscapePath(path)
	if err != nil {
		return Packed{}, err
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return Packed{}, fmt.Errorf("go env: %w", err)
	}
	p := Packed{Module: m, Modules: strings.TrimSpace(string(cache)), folder: folder}
	files, err := filesOf(root)
	if err != nil {
		return Packed{}, err
	}
	var archive bytes.Buffer
	if err := modzip.Create(&archive, m, files); err != nil {
		return Packed{}, fmt.Errorf("pack %s: %w", root, err)
	}
	requirements, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return Packed{}, err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{m.Version, when})
	if err != nil {
		return Packed{}, err
	}
	for name, text := range map[string][]byte{
		"@latest":                   info,
		"@v/list":                   nil, // pseudo-versions are not listed
		"@v/" + m.Version + ".info": info,
		"@v/" + m.Version + ".mod":  requirements,
		"@v/" + m.Version + ".zip":  archive.Bytes(),
	} {
		name = filepath.Join(folder, escaped, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o750), os.WriteFile(name, text, 0o600))
	}
	return p, err
}

// Environment returns variables with which the go command takes the module from the proxy, and
// all other modules from the module cache of this machine. It then uses no network.
func (p Packed) Environment() []string {
	// Forget can remove the module only if its files in the cache are writable.
	return append(Cached(p.Modules, p.folder), "GOFLAGS=-modcacherw")
}

// Cached returns variables with which the go command takes modules first from the proxies in
// several folders, and then from the module cache in the folder modules. It then uses no
// network.
func Cached(modules string, folders ...string) []string {
	proxies := ""
	for _, folder := range append(folders, filepath.Join(modules, "cache", "download")) {
		proxies += ",file://" + filepath.ToSlash(folder)
	}
	return []string{
		"GOPROXY=" + proxies[1:], "GOSUMDB=off", "GONOSUMDB=", "GOPRIVATE=", "GONOPROXY=",
		"GOWORK=off", "GOTOOLCHAIN=local", "GOFLAGS=",
	}
}

// Forget removes the module from the module cache, where the go command has put it.
func (p Packed) Forget() error {
	escaped, err := module.EscapePath(p.Module.Path)
	if err != nil {
		return err
	}
	kept, err := filepath.Glob(filepath.Join(p.Modules, "cache", "download", escaped, "@v", p.Module.Version+".*"))
	for _, name := range append(kept, filepath.Join(p.Modules, escaped+"@"+p.Module.Version)) {
		err = errors.Join(err, os.RemoveAll(name))
	}
	return err
}

// filesOf returns the files of a module that git tracks, and new files that git does not ignore.
// It asks git, because the folder also has files that were built or installed there.
func filesOf(root string) ([]modzip.File, error) {
	// In containers the folder can belong to another user, which git does not accept otherwise.
	git := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w", root, err)
	}
	var files []modzip.File
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, name)); errors.Is(err, fs.ErrNotExist) {
			continue // deleted and not committed yet
		}
		files = append(files, file{root, name})
	}
	return files, nil
}

// file is a file of a module.
type file struct {
	root, name string // the name has slashes
}

// Path implements modzip.File.
func (f file) Path() string { return f.name }

// Lstat implements modzip.File.
func (f file) Lstat() (fs.FileInfo, error) {
	return os.Lstat(filepath.Join(f.root, filepath.FromSlash(f.name)))
}

// Open implements modzip.File.
func (f file) Open() (io.ReadCloser, error) {
	return os.Open(filepath.Join(f.root, filepath.FromSlash(f.name)))
}
