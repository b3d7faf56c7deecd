package ec2sim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
)

// hexID maps a text to 17 hex digits, the length of EC2's ids.
func hexID(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:17]
}

// unit maps a text and the seed to [0, 1).
func unit(seed uint64, s string) float64 {
	sum := sha256.Sum256([]byte(strconv.FormatUint(seed, 10) + "|" + s))
	return float64(binary.BigEndian.Uint64(sum[:8])>>11) / math.Exp2(53)
}

// newID gives the next id of a kind; the sequence follows from the seed.
func (s *Server) newID(kind string) string {
	s.serial++
	return hexID(fmt.Sprintf("%d|%s|%d", s.opts.Seed, kind, s.serial))
}

func (s *Server) newUUID(kind string) string {
	h := s.newID(kind) + s.newID(kind)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32]
}
