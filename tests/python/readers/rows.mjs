// The rows of a Parquet file as JSON; bytes as a list of numbers.
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet'

const rows = await parquetReadObjects({ file: await asyncBufferFromFile(process.argv[2]), utf8: false })
console.log(JSON.stringify(rows, (k, v) => typeof v === 'bigint' ? Number(v) : ArrayBuffer.isView(v) ? [...v] : v))
