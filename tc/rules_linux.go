package tc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// All rules live in one table of this name, so that removing it removes them all.
const tableName = "heartbed"

// rules send the packets that arrive from a set of peers to one NFQUEUE.
//
// They act on what arrives, not on what leaves: a packet held on its way out
// still counts against its sender's socket, and TCP sends no third packet
// while two wait (TCP small queues). On arrival the sender has let go of it.
type rules struct {
	conn   *nftables.Conn
	table  *nftables.Table
	uplink string // Options.Uplink
	v4, v6 *nftables.Set
}

// openRules installs the rules, without peers, in the thread's namespace. A
// table left by a killed process is replaced: the caller owns the queue, so no
// one else can be using it.
func openRules(queue uint16, uplink string) (*rules, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, err
	}
	r := &rules{conn: conn, uplink: uplink, table: &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}}
	if err := r.install(queue); err != nil {
		return nil, errors.Join(fmt.Errorf("nftables rules: %w", err), conn.CloseLasting())
	}
	return r, nil
}

// The two ways to say "to this queue, or on as usual if nobody listens": the
// expression of nftables, and iptables' target for kernels without it.
func queueExprs(queue uint16) []expr.Any {
	info := make(xt.Unknown, 8) // struct xt_NFQ_info_v3: queue, number of queues, flags
	binary.NativeEndian.PutUint16(info, queue)
	binary.NativeEndian.PutUint16(info[2:], 1)
	binary.NativeEndian.PutUint16(info[4:], 1) // NFQ_FLAG_BYPASS
	return []expr.Any{
		&expr.Queue{Num: queue, Flag: expr.QueueFlagBypass},
		&expr.Target{Name: "NFQUEUE", Rev: 3, Info: &info},
	}
}

func (r *rules) install(queue uint16) error {
	if err := deleteTable(r.conn); err != nil {
		return err
	}
	var refused []error
	for _, to := range queueExprs(queue) {
		if err := r.add(to); err == nil {
			return nil
		} else if refused = append(refused, err); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	return unsupported(errors.Join(refused...), unix.ENOENT, unix.EOPNOTSUPP)
}

func (r *rules) add(to expr.Any) error {
	r.conn.AddTable(r.table)
	chain := r.conn.AddChain(r.chain())
	var err error
	source := func(name string, key nftables.SetDatatype, proto byte, offset, length uint32) *nftables.Set {
		set := &nftables.Set{Table: r.table, Name: name, KeyType: key}
		err = errors.Join(err, r.conn.AddSet(set, nil))
		r.conn.AddRule(&nftables.Rule{Table: r.table, Chain: chain, Exprs: append(r.behind(),
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
			&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID},
			to,
		)})
		return set
	}
	r.v4 = source("peers4", nftables.TypeIPAddr, unix.NFPROTO_IPV4, 12, 4)
	r.v6 = source("peers6", nftables.TypeIP6Addr, unix.NFPROTO_IPV6, 8, 16)
	if err != nil {
		return err
	}
	return r.conn.Flush()
}

// chain is where packets arrive. On a router it is where addresses are those of
// the machines at both ends, whatever is translated for connections through a
// Kubernetes Service before and after.
func (r *rules) chain() *nftables.Chain {
	c := &nftables.Chain{
		Name: "arrivals", Table: r.table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting,
		// Before connection tracking, which would take two packets of a new flow
		// that are held together for a clash.
		Priority: nftables.ChainPriorityRaw,
	}
	if r.uplink != "" {
		c.Hooknum, c.Priority = nftables.ChainHookForward, nftables.ChainPriorityFilter
	}
	return c
}

// behind matches what a router forwards to the machines behind it.
func (r *rules) behind() []expr.Any {
	if r.uplink == "" {
		return nil
	}
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, r.uplink)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: name},
	}
}

// setPeers replaces the peers whose packets are sent to the queue. The sets
// change in one transaction. The chain stays as it is, because the kernel
// drops all queued packets when a hook goes.
func (r *rules) setPeers(peers []netip.Addr) error {
	var v4, v6 []nftables.SetElement
	for _, p := range peers {
		if e := (nftables.SetElement{Key: p.AsSlice()}); p.Is4() {
			v4 = append(v4, e)
		} else {
			v6 = append(v6, e)
		}
	}
	for set, elements := range map[*nftables.Set][]nftables.SetElement{r.v4: v4, r.v6: v6} {
		r.conn.FlushSet(set)
		for part := range slices.Chunk(elements, 500) { // a netlink attribute ends at 64 KiB
			if err := r.conn.SetAddElements(set, part); err != nil {
				return err
			}
		}
	}
	if err := r.conn.Flush(); err != nil {
		return fmt.Errorf("nftables sets of peers: %w", err)
	}
	return nil
}

func (r *rules) close() error {
	return errors.Join(deleteTable(r.conn), r.conn.CloseLasting())
}

// deleteTable removes our table, if there is one.
func deleteTable(conn *nftables.Conn) error {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName })
	if i < 0 {
		return nil
	}
	conn.DelTable(tables[i])
	return conn.Flush()
}
