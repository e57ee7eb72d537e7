package offsite

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"
	"golang.org/x/crypto/argon2"
)

// docReader reads a bucket with nothing but what the package comments say: cas/bucket/seal, cas/remote, cas/pack,
// store/manifest, and formats.go here. It uses no code of flash's, and checks little: it is how someone else would begin.
type docReader struct {
	objects                  map[string][]byte // by stored key
	namesKey, contentsKey    []byte            // nil: not encrypted
	places                   map[[32]byte]docPlace
	nodes, patches, segments int // met
	codecs                   map[byte]int
}

type docPlace struct {
	pack           string // stored key
	offset, length uint32
}

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

func derive(context string, material ...[]byte) []byte {
	out := make([]byte, 32)
	blake3.DeriveKey(context, bytes.Join(material, nil), out)
	return out
}

func keyedHash(key []byte, parts ...[]byte) []byte {
	h, err := blake3.NewKeyed(key)
	if err != nil {
		panic(err)
	}
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

func gcm(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	a, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return a
}

// open does steps 1, 2 and 4: marker, key, catalogue.
func (r *docReader) open(passphrase string) error {
	var m struct {
		Flash  string
		Format int
		ID     string
		Seal   *struct {
			Check string
			Slots []struct {
				Kind     string
				Argon2id struct {
					Time      uint32 `json:"time"`
					MemoryKiB uint32 `json:"memory_kib"`
					Threads   uint8  `json:"threads"`
				}
				Salt, Wrapped []byte
			}
		}
	}
	if err := json.Unmarshal(r.objects["flash.json"], &m); err != nil || m.Flash != "remote" || m.Format != 1 {
		return fmt.Errorf("marker: %+v, %v", m, err)
	}
	if m.Seal != nil {
		for _, s := range m.Seal.Slots {
			if s.Kind != "passphrase" {
				continue
			}
			slotKey := argon2.IDKey([]byte(passphrase), s.Salt, s.Argon2id.Time, s.Argon2id.MemoryKiB, s.Argon2id.Threads, 32)
			data, err := gcm(slotKey).Open(nil, make([]byte, 12), s.Wrapped, []byte("flash 2026 seal 1 slot "+m.ID+" "+s.Kind))
			if err != nil {
				continue
			}
			check := keyedHash(derive("flash 2026 seal 1 check", data), []byte(m.ID))[:16]
			if base64.StdEncoding.EncodeToString(check) != m.Seal.Check {
				return fmt.Errorf("the check value is wrong")
			}
			r.namesKey, r.contentsKey = derive("flash 2026 seal 1 names", data), derive("flash 2026 seal 1 contents", data)
		}
		if r.namesKey == nil {
			return fmt.Errorf("no slot opens")
		}
	}
	return r.readCatalogue()
}

func (r *docReader) storedKey(plain string) string {
	if r.namesKey == nil {
		return plain
	}
	i := strings.LastIndex(plain, "/") + 1
	return plain[:i] + "=" + hex.EncodeToString(keyedHash(r.namesKey, []byte(plain)))
}

// readRange reads plain bytes of an object, of an encrypted one the segments that hold them. length 0: all.
func (r *docReader) readRange(key string, offset, length int) ([]byte, error) {
	o, ok := r.objects[key]
	if !ok {
		return nil, fmt.Errorf("there is no %s", key)
	}
	if r.contentsKey == nil {
		if length == 0 {
			length = len(o)
		}
		return o[offset : offset+length], nil
	}
	if string(o[:6]) != "FLSEAL" || o[6] != 1 || o[7] != 16 {
		return nil, fmt.Errorf("%s begins with %x", key, o[:8])
	}
	body := o[40:]
	segments := (len(body) + 65551) / 65552
	if length == 0 {
		length = len(body) - 16*segments
	}
	a := gcm(keyedHash(r.contentsKey, o[:40], []byte(key)))
	first, last := offset/65536, max(offset+length-1, offset)/65536
	var plain []byte
	for i := first; i <= last; i++ {
		nonce := make([]byte, 12)
		be.PutUint64(nonce[3:], uint64(i))
		if i == segments-1 {
			nonce[11] = 1
		}
		var err error
		if plain, err = a.Open(plain, nonce, body[i*65552:min((i+1)*65552, len(body))], nil); err != nil {
			return nil, fmt.Errorf("%s, segment %d: %w", key, i, err)
		}
		r.segments++
	}
	return plain[offset-first*65536:][:length], nil
}

func (r *docReader) list(folder string) (keys []string) {
	for k := range r.objects {
		if strings.HasPrefix(k, folder) {
			keys = append(keys, k)
		}
	}
	return keys
}

func (r *docReader) readCatalogue() error {
	r.places = map[[32]byte]docPlace{}
	for _, key := range r.list("catalog/") {
		p, err := r.readRange(key, 0, 0)
		if err != nil {
			return err
		}
		sum := blake3.Sum256(p[:len(p)-40])
		if string(p[:8]) != "FLSHCATL" || le.Uint16(p[8:]) != 1 || string(p[len(p)-8:]) != "FLSHCEND" || !bytes.Equal(sum[:], p[len(p)-40:len(p)-8]) {
			return fmt.Errorf("%s is no catalogue", key)
		}
		packs := int(le.Uint32(p[16:]))
		entry := 64 + 80*packs
		for i := range packs {
			line := p[64+80*i:]
			object := r.storedKey("packs/" + hex.EncodeToString(line[16:48]) + ".pack")
			for range le.Uint32(line[72:]) {
				r.places[[32]byte(p[entry:])] = docPlace{object, le.Uint32(p[entry+32:]), le.Uint32(p[entry+36:])}
				entry += 40
			}
		}
	}
	return nil
}

// chunk is step 6. It gives all plain bytes, of which named are what the hash covers.
func (r *docReader) chunk(hash [32]byte) (plain []byte, named int, err error) {
	at, ok := r.places[hash]
	if !ok {
		return nil, 0, fmt.Errorf("no catalogue lists %x", hash)
	}
	p, err := r.readRange(at.pack, int(at.offset), int(at.length))
	if err != nil {
		return nil, 0, err
	}
	plainBytes := int(p[3]) | int(p[4])<<8 | int(p[5])<<16
	named = int(p[9]) | int(p[10])<<8 | int(p[11])<<16
	codec := p[1] >> 4
	switch codec {
	case 0:
		plain = p[48:]
	case 1:
		plain, err = s2.Decode(nil, p[48:])
	case 2:
		d, _ := zstd.NewReader(nil)
		plain, err = d.DecodeAll(p[48:], nil)
		d.Close()
	}
	if err != nil || p[0] != 0xC5 || len(plain) != plainBytes {
		return nil, 0, fmt.Errorf("record of %x: %d bytes, %v", hash, len(plain), err)
	}
	r.codecs[codec]++
	if blake3.Sum256(plain[:named]) != hash {
		return nil, 0, fmt.Errorf("%x is named otherwise", hash)
	}
	return plain, named, nil
}

// checkpoints is step 5: the hashes of a VM's snapshots, by number.
func (r *docReader) checkpoints(vm string) (map[uint32][32]byte, error) {
	for _, key := range r.list("vms/") {
		p, err := r.readRange(key, 0, 0)
		if err != nil {
			return nil, err
		}
		host, name, stored := int(p[68]), int(p[69]), int(le.Uint32(p[16:]))
		if string(p[:8]) != "FLASHREF" || string(p[76+host:76+host+name]) != vm || p[10] != 1 {
			continue
		}
		h := p[76+host+name:][:stored]
		if p[11] == 1 {
			d, _ := zstd.NewReader(nil)
			defer d.Close()
			if h, err = d.DecodeAll(h, nil); err != nil {
				return nil, err
			}
		}
		return docHistory(h)
	}
	return nil, fmt.Errorf("there is no ref of %s", vm)
}

func docHistory(h []byte) (map[uint32][32]byte, error) {
	if h[0] != 'H' || h[1] != 1 {
		return nil, fmt.Errorf("a history begins with %x", h[:2])
	}
	at := 4 + int(h[3]) + 8 + 32 + 4 + 4 // name, created, bundle, head, next
	u32 := func() int { at += 4; return int(le.Uint32(h[at-4:])) }
	at += u32() // the host's JSON
	at += u32() // retention
	all := map[uint32][32]byte{}
	for range u32() {
		number := uint32(u32())
		at += 4 // parent
		all[number] = [32]byte(h[at:])
		at += 32 + 8 + 8
		flags := h[at]
		at++
		if flags&1 != 0 {
			at += 4
		}
		if flags&4 != 0 {
			at += 1 + int(h[at]) + 4
		}
		at += u32() // label
	}
	return all, nil
}

// image is steps 7 to 9: all bytes of an image of a snapshot.
func (r *docReader) image(snapshot [32]byte, name string) ([]byte, error) {
	p, _, err := r.chunk(snapshot)
	if err != nil {
		return nil, err
	}
	if p[0] != 'S' || p[1] != 1 {
		return nil, fmt.Errorf("a snapshot record begins with %x", p[:2])
	}
	at := 44
	u16 := func() int { at += 2; return int(le.Uint16(p[at-2:])) }
	for range u16() {
		at += 1 + int(p[at])
		at += u16()
	}
	for range u16() {
		n := int(p[at])
		called, size, root := string(p[at+1:at+1+n]), le.Uint64(p[at+1+n:]), [32]byte(p[at+9+n:])
		at += 1 + n + 8 + 32
		if called != name {
			continue
		}
		slots := (int(size) + 4095) / 4096
		level, under := 0, 128
		for under < slots {
			level, under = level+1, under*256
		}
		image := make([]byte, slots*4096)
		if root == [32]byte{} {
			return image[:size], nil
		}
		return image[:size], r.fill(image, root, level)
	}
	return nil, fmt.Errorf("there is no image %s", name)
}

// docEntry is one entry of a node.
type docEntry struct {
	tag   byte // 0 zero, 1 same-filled, 2 chunk
	value []byte
}

func (r *docReader) entries(node [32]byte, level int) ([]docEntry, error) {
	p, _, err := r.chunk(node)
	if err != nil {
		return nil, err
	}
	if p[0] != 'N' || p[1] != 1 || int(p[3]) != level {
		return nil, fmt.Errorf("a node of level %d begins with %x", level, p[:4])
	}
	r.nodes++
	width := map[byte]int{0: 0, 1: 8, 2: 32}
	if p[2] == 2 {
		r.patches++
		all, err := r.entries([32]byte(p[4:]), level)
		if err != nil {
			return nil, err
		}
		at := 38
		for range le.Uint16(p[36:]) {
			index, tag := p[at], p[at+1]
			all[index] = docEntry{tag, p[at+2:][:width[tag]]}
			at += 2 + width[tag]
		}
		return all, nil
	}
	count := 256
	if level == 0 {
		count = 128
	}
	all, at := make([]docEntry, count), 4+count/4
	for i := range all {
		tag := p[4+i/4] >> (2 * (i % 4)) & 3
		all[i] = docEntry{tag, p[at:][:width[tag]]}
		at += width[tag]
	}
	return all, nil
}

// fill writes what is below a node into image, which is what the node covers, cut at the image's end.
func (r *docReader) fill(image []byte, node [32]byte, level int) error {
	all, err := r.entries(node, level)
	if err != nil {
		return err
	}
	each := 4096
	for range level {
		if each == 4096 {
			each *= 128
		} else {
			each *= 256
		}
	}
	for i, e := range all {
		if i*each >= len(image) {
			break
		}
		part := image[i*each : min((i+1)*each, len(image))]
		switch {
		case e.tag == 1:
			for j := range part {
				part[j] = e.value[j%8]
			}
		case e.tag == 2 && level > 0:
			if err := r.fill(part, [32]byte(e.value), level-1); err != nil {
				return err
			}
		case e.tag == 2:
			page, _, err := r.chunk([32]byte(e.value))
			if err != nil {
				return err
			}
			copy(part, page)
		}
	}
	return nil
}
