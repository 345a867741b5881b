/** Selection of a partition for the lists and queries of a partitioned database. It is stored in the address. */
import { partitionInfo, partitionPath, partitions } from '../api/partitions.ts';
import { setParams, useParam } from '../router.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { useRequest, useSettled } from '../ui/use.ts';
import { bytes, plural } from '../ui/words.ts';
import type { DbInfo } from './db.tsx';

export interface Partition {
  /** Empty for the whole database. */
  name: string;
  /** The path that requests start with. */
  path: string;
}

/** Returns the partition in the address, which is ignored if the database is not partitioned. */
export function usePartition(db: string, info: DbInfo | undefined): Partition {
  const [typed] = useParam('partition');
  const settled = useSettled(typed, 300);
  const name = info?.props?.partitioned ? settled : '';
  return { name, path: partitionPath(db, name) };
}

export function PartitionField({ db, info, required = false }: { db: string; info: DbInfo | undefined; required?: boolean }) {
  const [typed] = useParam('partition');
  const partition = usePartition(db, info);
  const isPartitioned = info?.props?.partitioned === true;
  const known = useRequest((signal) => (isPartitioned ? partitions(db, signal).catch(() => []) : Promise.resolve([])), [db, isPartitioned]);
  const figures = useRequest((signal) => (partition.name === '' ? Promise.resolve(undefined) : partitionInfo(db, partition.name, signal).catch(() => undefined)), [db, partition.name]);
  if (!isPartitioned) return null;
  const hint = figures.data ? `${plural(figures.data.doc_count, 'document')}, ${bytes(figures.data.sizes.external)}` : required && typed === '' ? 'Views of this design document require a partition.' : undefined;
  return (
    <div class="partition">
      <ChoiceField label="Partition" value={typed} onValue={(value) => setParams({ partition: value, from: undefined }, true)} choices={known.data ?? []} placeholder={required ? 'a partition' : 'all partitions'} mono {...(hint === undefined ? {} : { hint })} />
    </div>
  );
}
