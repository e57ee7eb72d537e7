package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"flash/store"
	"flash/vmm/bundle"
)

var validBundle = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

// Bundles lists what VMs can be run from.
func (h *Host) Bundles(ctx context.Context) ([]Bundle, error) {
	known, err := h.store.Bundles(ctx)
	if err != nil {
		return nil, h.explain(err, "")
	}
	out := make([]Bundle, len(known))
	for i, b := range known {
		if out[i], err = h.bundleView(ctx, b); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (h *Host) bundleView(ctx context.Context, b store.Bundle) (Bundle, error) {
	snap, err := h.store.Snapshot(ctx, b.Snapshot)
	if err != nil {
		return Bundle{}, h.explain(fmt.Errorf("bundle %s: %w", b.Name, err), "")
	}
	out := Bundle{Name: b.Name, Created: b.Created, Snapshot: b.Snapshot.String(), Source: snap.Meta().Facts["source"]}
	for _, im := range snap.Images() {
		if im.Name == "disk0" {
			out.DiskMiB = int(im.Bytes >> 20)
		}
	}
	return out, nil
}

// BuildBundle builds one of the known bundles.
func (h *Host) BuildBundle(ctx context.Context, r BuildRequest, progress func(Progress)) (Bundle, error) {
	if r.Name == "" {
		r.Name = r.Kind
	}
	if !slices.Contains(bundle.Kinds, r.Kind) {
		return Bundle{}, Errorf(CodeInvalid, "build one of "+strings.Join(bundle.Kinds, ", ")+", or flash bundle import an image", "no bundle of kind %q is known", r.Kind)
	}
	return h.makeBundle(ctx, r.Name, progress, func(c bundle.Config) (bundle.Result, error) {
		return bundle.Build(ctx, c, r.Kind, r.Name, r.DiskMiB)
	})
}

// ImportBundle imports an image archive.
func (h *Host) ImportBundle(ctx context.Context, r ImportRequest, progress func(Progress)) (Bundle, error) {
	if !filepath.IsAbs(r.Path) {
		return Bundle{}, Errorf(CodeInvalid, "give an absolute path", "%q is not an absolute path", r.Path)
	}
	if r.Name == "" {
		r.Name = strings.ToLower(strings.TrimSuffix(filepath.Base(r.Path), filepath.Ext(r.Path)))
	}
	return h.makeBundle(ctx, r.Name, progress, func(c bundle.Config) (bundle.Result, error) {
		return bundle.Import(ctx, c, r.Path, r.Name, r.DiskMiB)
	})
}

func (h *Host) makeBundle(ctx context.Context, name string, progress func(Progress), make func(bundle.Config) (bundle.Result, error)) (Bundle, error) {
	if !validBundle.MatchString(name) {
		return Bundle{}, Errorf(CodeInvalid, "use 1 to 63 of a-z 0-9 . _ -, as in debian", "%q is not a name for a bundle", name)
	}
	c := bundle.Config{Store: h.store, WorkDir: h.scratchDir(), CacheDir: filepath.Join(h.cfg.Home, "cache"), Progress: func(step string, done, total int64, unit string) {
		if progress != nil {
			progress(Progress{Step: step, Done: done, Total: total, Unit: unit})
		}
	}}
	result, err := make(c)
	if err != nil {
		return Bundle{}, h.explainBundle(name, err)
	}
	b, err := h.store.Bundle(ctx, name)
	if err != nil {
		return Bundle{}, h.explain(err, "")
	}
	out, err := h.bundleView(ctx, b)
	out.NewBytes = result.NewBytes
	return out, err
}

// RemoveBundle removes a bundle's name. VMs made from it keep what they need.
func (h *Host) RemoveBundle(ctx context.Context, name string) error {
	err := h.store.DeleteBundle(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return Errorf(CodeBundleNotFound, "flash bundle ls lists them", "no bundle is called %q", name)
	}
	if err != nil {
		return h.explain(err, "")
	}
	return nil
}
