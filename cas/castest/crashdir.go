package castest

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// crashDir is a folder: what it shows, and what the disk is sure to have.
type crashDir struct {
	shown   map[string]*crashNode
	durable map[string]*crashNode
	changes []dirChange // since the last SyncDir, oldest first
}

// dirChange removes a name, if node is nil, or gives it to node.
type dirChange []struct {
	name string
	node *crashNode
}

// names tells whether it gives node a name.
func (c dirChange) names(node *crashNode) bool {
	for _, one := range c {
		if one.node == node {
			return true
		}
	}
	return false
}

func (c *CrashFS) dir(name string) (*crashDir, error) {
	d, ok := c.dirs[filepath.Clean(name)]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return d, nil
}

func (c *CrashFS) lookup(name string) (*crashDir, *crashNode, error) {
	d, err := c.dir(filepath.Dir(name))
	if err != nil {
		return nil, nil, err
	}
	n, ok := d.shown[filepath.Base(name)]
	if !ok {
		return d, nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return d, n, nil
}

func (d *crashDir) change(c dirChange) {
	c.apply(d.shown)
	d.changes = append(d.changes, c)
}

func cloneNames(m map[string]*crashNode) map[string]*crashNode {
	n := make(map[string]*crashNode, len(m))
	for k, v := range m {
		n[k] = v
	}
	return n
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (c dirChange) apply(names map[string]*crashNode) {
	for _, one := range c {
		if one.node == nil {
			delete(names, one.name)
		} else {
			names[one.name] = one.node
		}
	}
}
