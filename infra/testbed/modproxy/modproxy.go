// Package modproxy packs a module into the files of a module proxy for the go command. With
// such a proxy, a test can do what a user without a clone does: run go get, or go run
// package@version.
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

// Packed is the version of a module that Pack has put into a proxy.
type Packed struct {
	Module  module.Version
	Modules string // the folder of this machine's module cache
	folder  string // the proxy's folder
}

// Pack packs the module in the folder root, and writes the files of a proxy into another folder.
// The argument path is the module's path. The packed module has the files that git tracks, and
// new files that git does not ignore. Each call makes a new version, because the go command
// caches the versions that it has seen.
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
		"@v/list":                   nil, // empty, because the packed version is a pseudo-version, which such a list never names
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
// all other modules from this machine's module cache. The go command then uses no network.
func (p Packed) Environment() []string {
	// The flag makes the files in the module cache writable. Without it, Forget could not
	// remove them.
	return append(Cached(p.Modules, p.folder), "GOFLAGS=-modcacherw")
}

// Cached returns variables with which the go command takes a module from the proxies in
// several folders. If none of them has it, the module comes from the module cache in the
// folder modules. The go command then uses no network.
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

// Forget removes the module from the module cache, into which the go command has put it.
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

// filesOf returns the files of a module that git tracks, and new files that git does not
// ignore. Other files in the folder were built or installed there, and do not belong to the
// module.
func filesOf(root string) ([]modzip.File, error) {
	// In a container, the folder may belong to another user. Without this setting, git would
	// refuse to read it.
	git := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w", root, err)
	}
	var files []modzip.File
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, name)); errors.Is(err, fs.ErrNotExist) {
			continue // the file was deleted, but the deletion is not committed
		}
		files = append(files, file{root, name})
	}
	return files, nil
}

// file is a file of a module.
type file struct {
	root, name string // the name has slashes on every system
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
